"""What `lowpass serve` tells a newcomer once it answers."""

from router.api.auth import Keyring
from router.settings import Settings


def banner(settings: Settings, url: str, ring: Keyring, ledger: str) -> str:
    access = "open to everybody on this machine: no key exists" if ring.open_to_all else "a key is needed"
    key, header = ("unused", "") if ring.open_to_all else ("lp-…", " -H 'authorization: Bearer lp-…'")
    workers = f"\n  workers    {settings.workers} processes behind this address" if settings.workers > 1 else ""
    return f"""
lowpass answers at {url}  ({access})

  curl {url}/v1/chat/completions{header} -H 'content-type: application/json' \\
    -d '{{"model": "auto", "messages": [{{"role": "user", "content": "Say hello."}}]}}'

  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="{key}")
  answer = client.chat.completions.create(model="auto", messages=[{{"role": "user", "content": "Say hello."}}])
  print(answer.choices[0].message.content, answer.usage.cost)

  dashboard  {url}/dashboard
  policy     {settings.policy}  (edits are picked up; `lowpass check` reads it over)
  ledger     {ledger}  (`lowpass report spend --by target`){workers}
"""

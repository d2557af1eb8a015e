"""Keys and tokens in the forms that their issuers document. None was ever given out."""

import base64
import json
import string
import zlib
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from bench.sensitivity.values.draw import ALNUM, HEX, LOWER, UPPER, URLSAFE, digits, word

_BASE64 = ALNUM + "+/"
_BASE32 = string.ascii_uppercase + "234567"


class Secret(NamedTuple):
    """`name`: a variable that holds it; `label`: what people call it."""

    kind: str
    name: str
    label: str
    make: Callable[[Random], str]


def _then(*parts: str | tuple[str, int]) -> Callable[[Random], str]:
    """Fixed parts, and so many characters of an alphabet."""
    return lambda draw: "".join(part if isinstance(part, str) else word(draw, *part) for part in parts)


def _either(*makers: Callable[[Random], str]) -> Callable[[Random], str]:
    return lambda draw: draw.choice(makers)(draw)


def _github(prefix: str) -> Callable[[Random], str]:
    """30 characters and their CRC-32 in base 62."""

    def make(draw: Random) -> str:
        body = word(draw, ALNUM, 30)
        left, check = zlib.crc32(body.encode()), ""
        for _ in range(6):
            left, place = divmod(left, 62)
            check = (string.digits + string.ascii_uppercase + string.ascii_lowercase)[place] + check
        return prefix + body + check

    return make


def _jwt(draw: Random) -> str:
    head = {"alg": draw.choice(("HS256", "RS256", "ES256")), "typ": "JWT"}
    claims = {"sub": digits(draw, 10), "iat": 1_700_000_000 + draw.randrange(10**8), "scope": "read write"}
    parts = [_urlsafe(json.dumps(part, separators=(",", ":")).encode()) for part in (head, claims)]
    return ".".join((*parts, _urlsafe(draw.randbytes(32))))


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _pem(draw: Random) -> str:
    name = draw.choice(("RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED ", "DSA "))
    size = 120 if name == "EC " else draw.choice((600, 1200))
    text = base64.b64encode(draw.randbytes(size)).decode()
    mark = draw.choice(("\n", "\n", "\\n"))
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return mark.join((f"-----BEGIN {name}" + "PRIVATE KEY-----", *lines, f"-----END {name}" + "PRIVATE KEY-----"))


def _connection(draw: Random) -> str:
    scheme, port, base = draw.choice(_SERVERS)
    user, host = (
        draw.choice(("app", "svc_orders", "root", "admin")),
        draw.choice(("db.internal", "10.2.3.4", "pg-1.eu.acme.io")),
    )
    return f"{scheme}://{user}:{_password(draw, ALNUM + '_.!')}@{host}:{port}/{base}"


_SERVERS = (
    ("postgres", 5432, "orders"),
    ("postgresql", 5432, "app"),
    ("mysql", 3306, "shop"),
    ("mongodb", 27017, "admin"),
    ("redis", 6379, "0"),
    ("amqp", 5672, "jobs"),
    ("postgresql+asyncpg", 5432, "app"),
)


def _dotnet(draw: Random) -> str:
    password = _password(draw, ALNUM + "!_")
    return f"Server=tcp:sql-1.acme.net,1433;Database=shop;User ID=svc;Password={password};Encrypt=True"


def _storage(draw: Random) -> str:
    key = base64.b64encode(draw.randbytes(64)).decode()
    name = f"acme{digits(draw, 3)}"
    return f"DefaultEndpointsProtocol=https;AccountName={name};AccountKey={key};EndpointSuffix=core.windows.net"


def _password(draw: Random, alphabet: str = ALNUM + "!#%&*_-+?") -> str:
    """Eight to twenty characters with a capital and a digit."""
    text = word(draw, alphabet, draw.randrange(6, 18))
    return draw.choice(string.ascii_uppercase) + text + draw.choice(string.digits)


def _basic(draw: Random) -> str:
    return "Basic " + base64.b64encode(f"svc:{_password(draw)}".encode()).decode()


def _google_account(draw: Random) -> str:
    body = base64.b64encode(draw.randbytes(1200)).decode()
    key = "-----BEGIN " + "PRIVATE KEY-----\n" + body + "\n-----END " + "PRIVATE KEY-----\n"
    mail = "svc@acme-1.iam.gserviceaccount.com"
    return json.dumps(
        {"type": "service_account", "private_key_id": word(draw, HEX, 40), "private_key": key, "client_email": mail}
    )


_A, _D, _H, _S, _U = ALNUM, string.digits, HEX, URLSAFE, UPPER
SECRETS = (
    Secret(
        "aws-id",
        "AWS_ACCESS_KEY_ID",
        "AWS key",
        _either(_then("AK" + "IA", (_BASE32, 16)), _then("AS" + "IA", (_BASE32, 16))),
    ),
    Secret("aws-secret", "AWS_SECRET_ACCESS_KEY", "AWS secret access key", _then((_BASE64, 40))),
    Secret("github", "GITHUB_TOKEN", "GitHub token", _either(*(_github(f"gh{one}_") for one in "pous"))),
    Secret(
        "github-fine", "GH_TOKEN", "GitHub token", _then("github" + "_pat_11", (_U, 9), "0", (_A, 10), "_", (_A, 59))
    ),
    Secret("gitlab", "GITLAB_TOKEN", "GitLab token", _then("gl" + "pat-", (_S, 20))),
    Secret("npm", "NPM_TOKEN", "npm token", _github("np" + "m_")),
    Secret("pypi", "TWINE_PASSWORD", "upload token", _then("pypi-" + "AgEIcHlwaS5vcmc", (_S, 160))),
    Secret("rubygems", "GEM_HOST_API_KEY", "RubyGems key", _then("ruby" + "gems_", (_H, 48))),
    Secret("docker", "DOCKER_TOKEN", "Docker Hub token", _then("dckr" + "_pat_", (_S, 27))),
    Secret("slack-bot", "SLACK_BOT_TOKEN", "Slack token", _then("xo" + "xb-", (_D, 12), "-", (_D, 13), "-", (_A, 24))),
    Secret(
        "slack-user",
        "SLACK_TOKEN",
        "Slack token",
        _then("xo" + "xp-", (_D, 12), "-", (_D, 12), "-", (_D, 13), "-", (_H, 32)),
    ),
    Secret(
        "slack-hook",
        "SLACK_WEBHOOK_URL",
        "Slack webhook",
        _then("https://hooks.slack" + ".com/services/T", (_U, 10), "/B", (_U, 10), "/", (_A, 24)),
    ),
    Secret("discord", "DISCORD_TOKEN", "Discord bot token", _then("M", (_A, 25), ".G", (_A, 5), ".", (_S, 38))),
    Secret("telegram", "TELEGRAM_BOT_TOKEN", "Telegram bot token", _then((_D, 10), ":AA", (_S, 33))),
    Secret(
        "stripe",
        "STRIPE_SECRET_KEY",
        "Stripe key",
        _either(_then("sk" + "_live_", (_A, 24)), _then("rk" + "_live_", (_A, 99))),
    ),
    Secret(
        "square",
        "SQUARE_ACCESS_TOKEN",
        "Square token",
        _either(_then("sq0" + "atp-", (_S, 22)), _then("EAA" + "A", (_S, 60))),
    ),
    Secret("shopify", "SHOPIFY_TOKEN", "Shopify token", _then("shp" + "at_", (_H, 32))),
    Secret(
        "openai",
        "OPENAI_API_KEY",
        "OpenAI key",
        _either(
            _then("sk-", (_A, 20), "T3Blbk" + "FJ", (_A, 20)),
            _then("sk-" + "proj-", (_S, 74), "T3Blbk" + "FJ", (_S, 74)),
        ),
    ),
    Secret("anthropic", "ANTHROPIC_API_KEY", "Anthropic key", _then("sk-" + "ant-api03-", (_S, 93), "AA")),
    Secret("openrouter", "OPENROUTER_API_KEY", "OpenRouter key", _then("sk-" + "or-v1-", (_H, 64))),
    Secret("groq", "GROQ_API_KEY", "Groq key", _then("gs" + "k_", (_A, 52))),
    Secret("xai", "XAI_API_KEY", "xAI key", _then("xa" + "i-", (_A, 80))),
    Secret("huggingface", "HF_TOKEN", "Hugging Face token", _then("h" + "f_", (string.ascii_letters, 34))),
    Secret("replicate", "REPLICATE_API_TOKEN", "Replicate token", _then("r" + "8_", (_A, 37))),
    Secret("perplexity", "PERPLEXITY_API_KEY", "Perplexity key", _then("pp" + "lx-", (_A, 48))),
    Secret("google", "GOOGLE_API_KEY", "Google API key", _then("AI" + "za", (_S, 35))),
    Secret("google-oauth", "GOOGLE_CLIENT_SECRET", "client secret", _then("GOC" + "SPX-", (_S, 28))),
    Secret("google-account", "GOOGLE_CREDENTIALS", "service account", _google_account),
    Secret("azure-storage", "AZURE_STORAGE_CONNECTION_STRING", "storage account", _storage),
    Secret(
        "azure-client", "AZURE_CLIENT_SECRET", "Azure client secret", _then((_A, 3), "8Q" + "~", (ALNUM + "_~.-", 34))
    ),
    Secret("digitalocean", "DIGITALOCEAN_TOKEN", "DigitalOcean token", _then("do" + "p_v1_", (_H, 64))),
    Secret("heroku", "HEROKU_API_KEY", "Heroku key", _then("HR" + "KU-AA", (_S, 58))),
    Secret("databricks", "DATABRICKS_TOKEN", "Databricks token", _then("da" + "pi", (_H, 32))),
    Secret("terraform", "TFE_TOKEN", "Terraform token", _then((_A, 14), ".atlas" + "v1.", (_S, 67))),
    Secret("vault", "VAULT_TOKEN", "Vault token", _then("hv" + "s.", (_S, 92))),
    Secret("grafana", "GRAFANA_TOKEN", "Grafana token", _then("gl" + "sa_", (_A, 32), "_", (_H, 8))),
    Secret("sendgrid", "SENDGRID_API_KEY", "SendGrid key", _then("S" + "G.", (_S, 22), ".", (_S, 43))),
    Secret("twilio", "TWILIO_API_KEY", "Twilio key", _then("S" + "K", (_H, 32))),
    Secret("mailgun", "MAILGUN_API_KEY", "Mailgun key", _then("ke" + "y-", (_H, 32))),
    Secret("newrelic", "NEW_RELIC_API_KEY", "New Relic key", _then("NR" + "AK-", (_U, 27))),
    Secret("datadog", "DD_API_KEY", "Datadog API key", _then((_H, 32))),
    Secret("atlassian", "JIRA_API_TOKEN", "Jira token", _then("ATAT" + "T3xFfGF0", (_S, 171), "=", (HEX.upper(), 8))),
    Secret("linear", "LINEAR_API_KEY", "Linear key", _then("lin" + "_api_", (_A, 40))),
    Secret("notion", "NOTION_TOKEN", "Notion token", _then("nt" + "n_", (_D, 11), (_A, 35))),
    Secret("doppler", "DOPPLER_TOKEN", "Doppler token", _then("dp" + ".pt.", (_A, 43))),
    Secret("age", "AGE_KEY", "age key", _then("AGE-SECRET" + "-KEY-1", ("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58))),
    Secret("jwt", "ACCESS_TOKEN", "token", _jwt),
    Secret("private-key", "SSH_PRIVATE_KEY", "private key", _pem),
    Secret("connection", "DATABASE_URL", "connection string", _connection),
    Secret("connection-net", "SQLSERVER_CONNECTION", "connection string", _dotnet),
    Secret("basic-auth", "AUTHORIZATION", "authorization header", _basic),
    Secret("bearer", "AUTHORIZATION", "authorization header", _then("Bearer ", (LOWER, 48))),
    Secret("password", "DB_PASSWORD", "password", _password),
)

"""The policy in force as a page, and another one tried there."""

import asyncio
import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from router.api.dashboard.replaying import Replays, Trial
from router.errors import ClientError
from router.ledger.ledger import SqliteLedger
from tests.dashboard.conftest import HAPPENED
from tests.dashboard.fetch import Page, post
from tests.dashboard.serving import CONFIG, HOSTILE, serving
from tests.dashboard.test_dashboard import page, text_of
from tests.report.filled import fill

SOUND = """\
version: 1
targets:
  big: {model: openai/gpt-5.4-mini, api_key: "${SOME_KEY}"}
routes:
  auto: {strategy: {kind: cheapest, targets: [big]}}
"""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "policy.yaml").write_text(SOUND)
    ledger = SqliteLedger(tmp_path / "lowpass.db")
    with serving(fill(ledger, HAPPENED[1:]), config=structs.replace(CONFIG, path=str(tmp_path / "policy.yaml"))) as url:
        yield f"{url}/dashboard/policy"


def tried(house: str, text: str, status: int = 200) -> Page:
    answer = post(house, {"policy": text, "action": "check"})
    assert answer.status == status
    return Page(answer.body)


def test_what_is_in_force(house: str) -> None:
    seen = page(house)
    assert ["local", "house/model", "–", "house", "local", "healthy"] in seen.rows
    assert ["mini", HOSTILE, "–", "house", "local", "half-open"] in seen.rows
    assert ["daily", "$0.25", "day", "all", "everything", "refuse"] in seen.rows


def test_mistakes_of_the_file_in_force_are_told(house: str, tmp_path: Path) -> None:
    assert "–" not in text_of(page(house)).partition("Check")[2].partition("Try")[0]
    (tmp_path / "policy.yaml").write_text(SOUND.replace("cheapest", "cheepest"))
    assert "5:26" in text_of(page(house)) or "cheepest" in text_of(page(house))


def test_a_sound_policy(house: str) -> None:
    seen = tried(house, SOUND)
    assert "This policy is sound." in text_of(seen)
    assert "openai/gpt-5.4-mini" in seen.text


def test_mistakes_stand_at_their_places_beside_the_text(house: str) -> None:
    seen = tried(house, SOUND.replace("[big]", "[bog]").replace("version: 1", "version: 1\ncolour: red"))
    for part in ("2 mistakes", "2:1", "6:47"):
        assert part in text_of(seen)
    assert [span.get("class") for span in seen.named("span")].count("wrong") == 2


def test_whatever_is_pasted_is_text(house: str) -> None:
    for text in ("", " ", "\x00", "- a", "version: 2", "a: " * 50, HOSTILE, "</textarea><b>x</b>"):
        seen = tried(house, text)
        assert (seen.named("script"), seen.named("b")) == ([], [])
        assert "mistake" in text_of(seen)


def test_no_variable_of_the_gateway_is_read(house: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWPASS_DATABASE_URL", "postgres://user:" + "geheim@db")
    text = SOUND.replace("openai/gpt-5.4-mini", '"openai/${LOWPASS_DATABASE_URL}"').replace(
        "${SOME_KEY}", "${SOME_KEY:-x}"
    )
    answer = post(house, {"policy": text})
    assert "geheim" not in answer.body
    assert "1 mistake" in text_of(Page(answer.body))


def test_a_variable_counts_as_set_and_a_default_is_taken(house: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the gateway has it makes no difference."""
    monkeypatch.setenv("SOME_MODEL", "nothing")
    text = SOUND.replace("openai/gpt-5.4-mini", '"openai/${SOME_MODEL:-gpt-5.4-mini}"')
    assert "This policy is sound." in text_of(tried(house, text))


def test_no_file_of_the_gateway_is_looked_at(house: str, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("{}")
    known, unknown = (
        text_of(tried(house, SOUND.replace('api_key: "${SOME_KEY}"', f"engine: {path}")))
        for path in (spec, tmp_path / "nothing.yaml")
    )
    assert known.replace("spec", "nothing") == unknown


def test_a_policy_may_not_be_larger_than_any_is(house: str) -> None:
    assert "larger than 256 KiB" in text_of(tried(house, "#" * 300_000, 413))
    assert "larger than 1024 KiB" in text_of(tried(house, "#" * 2_000_000, 413))


def test_a_policy_is_replayed(house: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))
    answer = post(house, {"policy": SOUND, "action": "replay", "days": "30"})
    assert answer.status == 200
    assert "Replay under policy" in text_of(Page(answer.body))


def test_a_replay_that_takes_too_long_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))

    async def impatient() -> None:
        replays, trial = Replays(limit_s=0), Trial(SOUND.encode(), "policy.yaml", 0)
        first = asyncio.ensure_future(replays.run(trial))
        await asyncio.sleep(0)
        with pytest.raises(ClientError, match="Another replay"):
            await replays.run(trial)
        with pytest.raises(ClientError, match="longer than"):
            await first

    asyncio.run(impatient())


def test_processes_of_one_gateway_replay_one_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOWPASS_HOME", str(tmp_path))
    with (tmp_path / "replay.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ClientError, match="Another replay") as refused:
            asyncio.run(Replays().run(Trial(SOUND.encode(), "policy.yaml", 0)))
    assert refused.value.status == 409


def test_nothing_of_it_reaches_the_log(house: str, caplog: pytest.LogCaptureFixture) -> None:
    tried(house, SOUND + "geheim: x")
    assert "geheim" not in caplog.text

"""`python -m bench.routing.speed`, as small as it gets: it goes the gateway's own way and says what it measured."""

import pytest

from bench.routing import speed


def test_every_prompt_is_timed_and_the_memory_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "SIZES", ((20, 2, 0.0), (50, 1, 1e6)))
    report = speed.measure(rounds=1)
    assert [(one.text, one.tokens) for one in report.times] == [
        (text, tokens) for text in ("prose", "words nobody has seen") for tokens in (20, 50)
    ]
    assert all(one.read_ms > 0 and one.choose_ms > 0 and one.screen_ms > 0 for one in report.times)
    assert 10 < report.before_mb <= report.after_mb + 1
    assert not report.sound
    text = speed.render(report)
    assert text.count("✗") == 1
    assert "MB" in text

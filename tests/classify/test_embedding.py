"""Texts of like meaning are near each other, every text has a vector."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify import embedding
from router.classify.embedding import DIMENSIONS, SPACE, Single, WordPieces, load
from router.errors import DataError
from tests.tables import data, each_row

ODD = {
    **{"NUL": "one\0two", "lone surrogates": "\ud800 word \udfff", "emoji": "🎉 👩‍👩‍👧 🇮🇪", "unassigned": "\U000e0fff"},
    **{"Chinese": "微积分的基本定理是什么？", "Thai": "ภาษาไทยไม่มีช่องว่างระหว่างคำ", "Arabic": "ما هي عاصمة مصر؟"},
    **{"a control mark of ours": "\x01\x01 \x01word", "combining": "e\u0301" * 100, "an endless word": "a" * 10_000},
    "indents": "\n" + " " * 99 + "x\n\t\ty",
}


def embed(text: str) -> Single:
    return load().embed(text)[0]


def near(text: str, other: str) -> float:
    return float(embed(text) @ embed(other))


def test_like_is_near_like_marks_and_lines_hardly_matter_and_the_order_of_words_not_at_all() -> None:
    for text, closer, farther in data(__file__, "samples/alike.yaml"):
        assert near(text, closer) > near(text, farther) + 0.1, text
    assert near("What is the capital of France", "What is the capital,\nof France?") > 0.8
    assert np.array_equal(embed("one two three"), embed("three two one"))


def test_every_text_has_a_vector_of_length_one_and_nothing_has_none() -> None:
    for name, vector in ((name, embed(text)) for name, text in ODD.items()):
        assert (str(vector.dtype), vector.shape) == ("float32", (DIMENSIONS,)), name
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5), name
    assert not any(embed(blank).any() for blank in ("", " ", "\t \r\v", "\u3000"))


@settings(deadline=None)
@given(st.text(max_size=300))
def test_a_text_has_the_same_vector_whatever_came_before(text: str) -> None:
    first = embed(text)
    load().words.clear()
    assert np.array_equal(first, embed(text))
    assert np.isfinite(first).all()


def test_what_is_kept_of_words_and_characters_has_a_bound_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value in (("WORDS", 100), ("_CHARACTERS", 50)):
        monkeypatch.setattr(embedding, limit, value)
    words = WordPieces({"▁": 300, "a": 301, "▁a": 302})
    words.split("private text")
    assert repr(words) == str(words) == "<2 words>"
    for number in range(1_000):
        words.split(f"a{number} {chr(0x4E00 + number)}, {'a' * 99}")
        assert len(words) <= 100
    words.split("".join(map(chr, range(0x4E00, 0x5000))))
    assert len(words._pieces) <= 50


PIECES: dict[str, list[str | bytes]] = {
    **{"ab": ["▁ab"], "abc ab": ["▁ab", "c", "▁ab"], "bc": ["▁", "bc"], "ab,": ["▁ab", ","]},
    **{"ab\nab": ["▁ab", "\n", "ab"], "    ab": ["▁▁▁", "▁ab"], "é": ["▁", b"\xc3", b"\xa9"]},
}


@each_row("text, expected", PIECES.items())
def test_words_are_cut_by_joining_the_pairs_that_were_learned_first(text: str, expected: list[str | bytes]) -> None:
    learned = ["▁▁", "▁a", "ab", "▁ab", "bc", "▁▁▁", "a", "b", "c", ",", "▁"]
    numbers = {piece: 259 + order for order, piece in enumerate(learned)}
    cut = np.frombuffer(WordPieces(numbers).split(text), ">u2").tolist()
    assert cut == [3 + piece[0] if isinstance(piece, bytes) else numbers.get(piece, 3 + 10) for piece in expected]


@settings(deadline=None)
@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=1, max_size=32))
def test_the_quick_way_of_cutting_a_word_gives_what_the_slow_one_gives(word: str) -> None:
    assert load().words.split(word) == load().words._pieces.join(SPACE + word)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of the same name without its data; the true one is read again afterwards."""
    for folder in ("weights", "tokenizers"):
        (tmp_path / "wordllama" / folder).mkdir(parents=True)
    (tmp_path / "wordllama" / "__init__.py").write_text("raise RuntimeError('it is never imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    load.cache_clear()
    yield tmp_path / "wordllama"
    load.cache_clear()


VOCABULARY = '{"model": {"vocab": {"▁": 300}, "merges": []}}'
HEADER = b'{"embedding.weight":{"dtype":"F16","shape":[32000,256],"data_offsets":[0,16384000]}}'
SIZED = len(HEADER).to_bytes(8, "little") + HEADER
DAMAGES: dict[str, tuple[str, bytes] | None] = {
    **{"missing": None, "empty": ("", b""), "no vocabulary": ("{}", b""), "empty table": (VOCABULARY, b"")},
    **{"no header": (VOCABULARY, b"\xff" * 64), "no table": (VOCABULARY, (2).to_bytes(8, "little") + b"{}")},
    **{"short table": (VOCABULARY, SIZED + b"too short"), "few pieces": (VOCABULARY, SIZED + bytes(16_384_000))},
    "other table": (VOCABULARY, SIZED.replace(b"F16", b"F32")),
}


@each_row("files", DAMAGES.values(), ids=list(DAMAGES))
def test_damaged_data_is_an_error_that_says_what_to_do(elsewhere: Path, files: tuple[str, bytes] | None) -> None:
    if files is not None:
        (elsewhere / embedding._TOKENIZER).write_text(files[0])
        (elsewhere / embedding._WEIGHTS).write_bytes(files[1])
    with pytest.raises(DataError, match=r"wordllama can't be read .* install it again"):
        load()


def test_a_missing_package_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    load.cache_clear()
    with pytest.raises(DataError, match="wordllama is not installed"):
        load()


def test_nothing_is_read_at_import_and_the_package_is_never_run() -> None:
    code = (
        "import sys; opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' else None)\n"
        "from router.classify import embedding\n"
        "assert not any('wordllama' in name for name in opened)\n"
        "embedding.load().embed('a text')\n"
        "assert any('wordllama' in name for name in opened)\n"
        "assert {'wordllama', 'tokenizers', 'requests', 'toml', 'safetensors'}.isdisjoint(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

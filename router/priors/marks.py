"""Words that name a task, in several languages: a mean of words hardly notices one verb beside a long text."""

from collections.abc import Callable, Sequence

import numpy as np
import re2

from router.types.classification import Traits
from router.types.task import Task

EDGE = 300
"""Characters at the start and at the end of a text where people say what they want."""
STEMS: dict[Task, tuple[str, ...]] = {
    Task.SUMMARY: (
        *("summar", "tl;dr", "tldr", "in a nutshell", "main points", "key points", "takeaway", "condense", "gist"),
        *(
            "shorten",
            "recap",
            "abstract of",
            "boil ",
            "zusammenfass",
            "fasse ",
            "kernaussage",
            "wichtigste",
            "stichpunkt",
        ),
        *("résum", "synthèse", "points principaux", "raccourci", "resum", "síntesis", "ideas principales", "acorta"),
        *(
            "riassum",
            "总结",
            "摘要",
            "概括",
            "要点",
            "總結",
            "要約",
            "まとめ",
            "요약",
            "кратко",
            "резюм",
            "ملخص",
            "لخص",
        ),
    ),
    Task.TRANSLATION: (
        *("translat", "how do you say", "say this in", "into german", "into french", "into spanish", "into english"),
        *("in french", "in german", "in spanish", "in chinese", "in japanese", "word for", "übersetz", "auf englisch"),
        *(
            "auf deutsch",
            "auf französisch",
            "auf spanisch",
            "traduis",
            "traduire",
            "traduction",
            "en anglais",
            "en allemand",
        ),
        *(
            "traduc",
            "traduz",
            "al inglés",
            "en inglés",
            "翻译",
            "译成",
            "译为",
            "翻譯",
            "翻訳",
            "訳して",
            "번역",
            "перевед",
            "ترجم",
        ),
    ),
    Task.CLASSIFICATION: (
        *("classif", "categor", "sentiment", "label", "spam", "positive", "yes or no", "true or false", "which tag"),
        *(
            "rate the",
            "kategorie",
            "einordnen",
            "ordne ",
            "stimmung",
            "positiv oder",
            "ja oder nein",
            "catégorie",
            "classe ",
        ),
        *(
            "positif",
            "oui ou non",
            "clasifi",
            "categoría",
            "positiva",
            "sí o no",
            "分类",
            "情感",
            "正面",
            "是或否",
            "標籤",
        ),
        *("分類", "肯定的", "感情", "分류", "классиф", "صنف"),
    ),
    Task.EXTRACTION: (
        *(
            "extract",
            "pull out",
            "list all",
            "list every",
            "find all",
            "as json",
            "in json",
            "json",
            "parse ",
            "entities",
        ),
        *("fill in the fields", "action items", "mentioned", "zieh", "extrah", "liste alle", "nenne alle", "auflist"),
        *("extrai", "liste tous", "liste les", "trouve tous", "extrae", "enumera", "lista todos", "encuentra todos"),
        *("提取", "列出", "找出所有", "抽出", "抜き出", "挙げて", "추출", "извлек", "استخرج"),
    ),
    Task.CREATIVE: (
        *(
            "poem",
            "story",
            "haiku",
            "slogan",
            "song",
            "lyrics",
            "limerick",
            "novel",
            "fairy tale",
            "rewrite",
            "blog post",
        ),
        *(
            "draft ",
            "compose",
            "invent ",
            "headline",
            "speech",
            "brainstorm",
            "gedicht",
            "geschichte",
            "erfinde",
            "entwirf",
        ),
        *("poème", "histoire", "invente", "rédige", "écris", "poema", "cuento", "redacta", "escribe un", "inventa"),
        *("写一首", "故事", "写一封", "诗", "詩", "物語", "童話", "キャッチコピー", "시를", "стих", "قصيدة"),
    ),
    Task.CODE: (
        *(
            "```",
            "python",
            "javascript",
            "typescript",
            " java",
            "function",
            "sql",
            "regex",
            "unit test",
            "refactor",
            "compile",
        ),
        *(
            "bash",
            "docker",
            "rust",
            "exception",
            "stack trace",
            "html",
            "css",
            "c++",
            " api",
            "funktion",
            "fonction",
            "función",
        ),
        *("代码", "函数", "コード", "関数", "코드", "код"),
    ),
    Task.MATHS: (
        *("solve", "equation", "calculate", "compute", "integral", "derivative", "probability", "prove that", "sum of"),
        *("how many", "percent", "\\frac", "x^", "gleichung", "berechne", "wie viel", "beweise", "équation", "calcule"),
        *(
            "combien",
            "ecuación",
            "cuánto",
            "方程",
            "多少",
            "求",
            "計算",
            "方程式",
            "解いて",
            "いくつ",
            "방정식",
            "уравнен",
        ),
    ),
}
SIZE = len(STEMS)


def marks(text: str) -> Traits:
    """`float32 [SIZE]`: 1 for each task that one of its words is said of near an end of the text."""
    seen = text if len(text) <= 2 * EDGE else f"{text[:EDGE]}\n{text[-EDGE:]}"
    found = np.zeros(SIZE, np.float32)
    found[list(_matches(seen.encode(errors="replace")) or ())] = 1
    return found


def _compiled() -> Callable[[bytes], Sequence[int] | None]:
    """All stems in one automaton: a task is a set of alternatives. None: it finds nothing."""
    words = re2.Set.SearchSet()
    for stems in STEMS.values():
        words.Add("(?i:" + "|".join(map(re2.escape, stems)) + ")")
    words.Compile()
    match: Callable[[bytes], Sequence[int] | None] = words.Match
    return match


_matches = _compiled()

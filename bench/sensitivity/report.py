"""What a run of the detectors' bench found: one document, and the tables that it prints."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from bench.sensitivity.figures import Figure


class Report(Struct, frozen=True):
    """A part that was not asked for has no figures. `sizes`: texts or requests per part."""

    date: str
    processor: str
    load: tuple[float, float]
    """Of the machine, in the last minute before the run and after: a busy one inflates CPU times."""
    python: str
    split: str
    quick: bool
    seconds: float
    kinds: tuple[str, ...]
    """Of detectors that were on."""
    absent: dict[str, str]
    """What could not be measured, and why."""
    sizes: dict[str, int]
    figures: tuple[Figure, ...]
    confusion: dict[str, dict[str, int]]
    missed: dict[str, int]
    """Of the dev half: kind, notation and place of what was not seen → how often. Never a value."""

    @property
    def failed(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.passed is False]


_TITLES = {
    "identifiers": "Identifiers",
    "harmless": "Harmless texts",
    "secrets": "Secrets",
    "evasions": "Hidden: share of what is seen plain",
    "names": "Names, deep tier",
    "speed": "Speed",
    "adverse": "Inputs made to be slow: 1 MB against 250 kB",
    "classes": "Classes",
    "failures": "Failures",
}


def render(report: Report) -> str:
    goals = [figure for figure in report.figures if figure.passed is not None]
    head = (
        f"{report.date}, one core of an {report.processor}, Python {report.python}, {report.split} half"
        f"{', quick' if report.quick else ''}, {report.seconds:.0f} s, load {report.load[0]:.1f} before and"
        f" {report.load[1]:.1f} after. Detectors: {', '.join(report.kinds)}.\n\n"
        f"{len(goals) - len(report.failed)} of {len(goals)} goals reached."
    )
    absent = "\n".join(f"Not measured: {what}: {why}." for what, why in report.absent.items())
    parts = [_part(name, title, report.figures) for name, title in _TITLES.items()]
    tables = [*parts, _confusion(report.confusion), _missed(report.missed)]
    return "\n\n".join(part for part in (head, absent, *tables) if part) + "\n"


def _part(part: str, title: str, figures: Iterable[Figure]) -> str:
    """A line for each thing, a column for each measure of it."""
    own = [figure for figure in figures if figure.part == part]
    whats = list(dict.fromkeys(figure.what for figure in own))
    cells = {(figure.name, figure.what): _cell(figure) for figure in own}
    rows = [(name, *(cells.get((name, what), "") for what in whats)) for name in dict.fromkeys(one.name for one in own)]
    return _table(title, ("", *whats), rows)


def _cell(figure: Figure) -> str:
    if figure.of is None:
        text = f"{figure.value:.3f}" if figure.value < 10 else f"{figure.value:.1f}"
    elif figure.of == 0:
        text = "none"
    else:
        text = f"{figure.value:.3f} ({figure.low:.3f}–{figure.high:.3f}) of {figure.of}"
    return text if figure.goal is None else f"{text}{'' if figure.passed else f' ✗ {_wanted(figure)}'}"


def _wanted(figure: Figure) -> str:
    return f"{'≥' if figure.at_least else '≤'} {figure.goal:g}"


def _confusion(table: dict[str, dict[str, int]]) -> str:
    if not table:
        return ""
    seen = list(next(iter(table.values())))
    return _table("Seen as", ("", *seen), [(name, *map(str, row.values())) for name, row in table.items()])


def _missed(missed: dict[str, int]) -> str:
    rows = sorted(missed.items(), key=lambda one: -one[1])
    return _table("Missed", ("kind, notation, place", "times"), [(name, str(times)) for name, times in rows])


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return f"**{title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)

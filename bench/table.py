"""The result of a bench run, and its rendering as Markdown."""

from statistics import median

import msgspec

from bench.load import Quantiles, Result


class Scenario(msgspec.Struct, frozen=True):
    """A load shape. `warm_up` requests go first, uncounted; they also set how many are then measured."""

    name: str
    connections: int
    stream: bool
    warm_up: int


class Sample(msgspec.Struct, frozen=True):
    """One gateway in one round. `cpu_ms` is per request, of the whole process tree; None without a gateway."""

    cpu_ms: float | None
    load: Result


class Row(msgspec.Struct, frozen=True):
    """One gateway in one scenario: its samples, or the reason why there are none."""

    gateway: str
    version: str = ""
    samples: tuple[Sample, ...] = ()
    absent: str | None = None

    def cpu_ms(self) -> list[float]:
        return [sample.cpu_ms for sample in self.samples if sample.cpu_ms is not None]

    def per_second(self) -> float:
        return median(sample.load.requests / sample.load.seconds for sample in self.samples)

    def latency_ms(self) -> Quantiles:
        return _medians([sample.load.latency_ms for sample in self.samples])

    def first_byte_ms(self) -> Quantiles:
        return _medians([sample.load.first_byte_ms for sample in self.samples])


class Section(msgspec.Struct, frozen=True):
    scenario: Scenario
    rows: tuple[Row, ...]


class Machine(msgspec.Struct, frozen=True):
    processor: str
    cores: int
    apart: bool
    """The gateways had a core to themselves."""
    python: str


class Report(msgspec.Struct, frozen=True):
    date: str
    machine: Machine
    rounds: int
    sections: tuple[Section, ...]


def render(report: Report) -> str:
    """The report as Markdown: one table a scenario, gateways in the order they were measured."""
    machine = report.machine
    placed = (
        "gateway on one, load and upstream on the other" if machine.apart else "shared by gateway, load and upstream"
    )
    cores = f"{machine.cores} core{'s' if machine.cores > 1 else ''} of an {machine.processor} ({placed})"
    head = f"{report.date}, {cores}, Python {machine.python}, {_rounds(report.rounds)}."
    return "\n\n".join([head, *map(section_table, report.sections)]) + "\n"


def _rounds(number: int) -> str:
    return f"medians of {number} rounds" if number > 1 else "one round"


def section_table(section: Section) -> str:
    floor = next((median(row.cpu_ms()) for row in section.rows if row.gateway == "nginx" and row.cpu_ms()), None)
    title = ["gateway", "CPU ms/request", "min–max", "× nginx", "requests/s", "p50 ms", "p95 ms", "p99 ms"]
    if section.scenario.stream:
        title.append("first event p50 ms")
    lines = [title, ["---", *["--:"] * (len(title) - 1)], *(_cells(row, section, floor) for row in section.rows)]
    return f"**{section.scenario.name}**\n\n" + _aligned(lines)


def _cells(row: Row, section: Section, floor: float | None) -> list[str]:
    name = f"{row.gateway} {row.version}".strip()
    width = 8 + section.scenario.stream
    if row.absent:
        return [name, row.absent, *[""] * (width - 2)]
    latency = row.latency_ms()
    load = [f"{row.per_second():,.0f}", *(f"{value:.2f}" for value in (latency.p50, latency.p95, latency.p99))]
    first = [f"{row.first_byte_ms().p50:.2f}"] if section.scenario.stream else []
    return [name, *_cpu_cells(row.cpu_ms(), floor), *load, *first]


def _cpu_cells(cpu_ms: list[float], floor: float | None) -> list[str]:
    if not cpu_ms:
        return ["–", "–", "–"]
    ratio = f"{median(cpu_ms) / floor:.1f}" if floor else "–"
    return [f"{median(cpu_ms):.3f}", f"{min(cpu_ms):.3f}–{max(cpu_ms):.3f}", ratio]


def _aligned(lines: list[list[str]]) -> str:
    """A Markdown table that also reads well as text. A note of an absent peer may run over its column."""
    notes = [line for line in lines if len(line) > 2 and line[1] and not any(line[2:])]
    widths = [
        max(len(line[column]) for line in lines if line not in notes or column == 0) for column in range(len(lines[0]))
    ]
    return "\n".join(_line(line, widths) for line in lines)


def _line(cells: list[str], widths: list[int]) -> str:
    first, *rest = cells
    padded = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
    return "| " + " | ".join(padded) + " |"


def _medians(all_: list[Quantiles]) -> Quantiles:
    return Quantiles(*(median(getattr(each, name) for each in all_) for name in ("p50", "p95", "p99")))

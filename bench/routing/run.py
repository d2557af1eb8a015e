"""One run: a data set, a protocol, and what came out."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa

from bench.routing.by_difficulty import by_difficulty
from bench.routing.data import Data, load
from bench.routing.figures import GOALS
from bench.routing.folds import Fold, grouping, held_out, kfold
from bench.routing.metrics import Floats, Ints, best_single, singles
from bench.routing.plot import check_plot, draw_plot
from bench.routing.predicted import PRICES, Estimator, Fit, Tested, carry_out
from bench.routing.report import FoldReport, Report, Single, render
from bench.routing.score import Score, learned, of_fold, with_verifier
from bench.routing.tables import BadData, wrong
from router.estimate.estimator import read

__all__ = ["PROTOCOLS", "BadData", "Options", "measure", "render"]

PROTOCOLS = ("kfold", "leave-one-benchmark-out", "online")
FOLD_RESAMPLES = 200
HARM = 0.01
"""How much worse than its training part's pick a left-out fold may be."""
FEW = 30
"""Resamples of fewer prompts than this say too little of how sure a fold's figures are."""


class Options(NamedTuple):
    """`rows`, `prompts`: files, or a folder together with `name`. `labels`: how many prompts are learned from."""

    rows: Sequence[Path]
    prompts: Sequence[Path]
    name: str = ""
    protocol: str = "kfold"
    seed: int = 0
    labels: int | None = None
    resamples: int = 500
    targets: Sequence[str] = ()
    plot: Path | None = None


def measure(options: Options, fit: Fit | None = None) -> Report:
    """Raises BadData. `fit`: something else than `router.estimate.fit`."""
    began = time.monotonic()
    _check(options)
    data = load(options.rows, options.prompts, options.name, options.targets)
    if options.plot:
        check_plot(options.plot, data)
    report = _online(data, options) if options.protocol == "online" else _folded(data, options, fit or _shipped)
    return msgspec.structs.replace(report, seconds=round(time.monotonic() - began, 1))


def _check(options: Options) -> None:
    if options.protocol not in PROTOCOLS:
        wrong("--protocol", f"does not know {options.protocol}", f"choose of {', '.join(PROTOCOLS)}")
    for name, given in (("--plot", options.plot), ("--labels", options.labels)):
        if options.protocol == "online" and given is not None:
            wrong(name, "means nothing online", "leave it away, or choose another --protocol")


def _folded(data: Data, options: Options, fit: Fit) -> Report:
    out = options.protocol != "kfold"
    folds = (held_out if out else kfold)(data, options.seed, options.labels)
    with _progress(f"{data.name}, {options.protocol}", len(folds)) as advance:
        tested = carry_out(data, folds, fit, advance)
    goals = {} if data.sparse else GOALS[options.protocol]
    score = Score(tested, goals, data, out, options.resamples, options.seed)
    figures = list(score.figures())
    if data.priced and not data.sparse:
        figures.append(with_verifier(tested, data.targets, options.seed))
    report = Report(
        set=data.name,
        protocol=options.protocol,
        seed=options.seed,
        resamples=options.resamples,
        labels=options.labels,
        left_out=grouping(data) if out else "",
        prompts=len(data.prompts),
        scored=len(tested.prompts),
        targets=data.targets,
        notes=data.notes,
        figures=tuple(figures),
        singles=_singles(data, tested),
        best={f"{price:g}": data.targets[best_single(tested.truth, price)] for price in PRICES},
        folds=tuple(_fold_reports(folds, tested, options, data.priced, out)),
        by_difficulty=by_difficulty(_difficulty(data, tested.prompts), tested.router.choices, data.targets),
    )
    if options.plot:
        draw_plot(options.plot, data, tested, report.by_difficulty)
    return report


def _difficulty(data: Data, prompts: Ints) -> Floats:
    """[m], in logits, as the gateway's reader reads them."""
    shown = data.seen(prompts)
    texts = shown["prompt"].to_pylist()
    functions = shown["functions"].to_pylist() if "functions" in shown.column_names else [""] * len(texts)
    return np.array([read(*row).difficulty for row in zip(texts, functions, strict=True)])


def _online(data: Data, options: Options) -> Report:
    """From the shipped priors on, several orders of the prompts."""
    from bench.routing import online

    with _progress(f"{data.name}, online", len(PRICES) * online.ORDERS) as advance:
        found = online.run(data, seed=options.seed, advance=advance)
    goals = {} if data.sparse else GOALS["online"]
    return Report(
        set=data.name,
        protocol=options.protocol,
        seed=options.seed,
        resamples=0,
        labels=None,
        left_out="",
        prompts=len(data.prompts),
        scored=int(data.scored.sum()),
        targets=data.targets,
        notes=(*data.notes, f"intervals are over {online.ORDERS} orders of the prompts"),
        figures=tuple(figure for one in found for figure in learned(one, goals)),
        best={f"{one.failure_usd:g}": one.best for one in found},
    )


def _singles(data: Data, tested: Tested) -> tuple[Single, ...]:
    costs, accuracies = (column[0].tolist() for column in singles(tested.truth))
    return tuple(
        Single(target, accuracy, cost if data.priced else None)
        for target, cost, accuracy in zip(data.targets, costs, accuracies, strict=True)
    )


def _fold_reports(
    folds: Sequence[Fold], tested: Tested, options: Options, priced: bool, judged: bool
) -> Iterator[FoldReport]:
    """A held-out fold is harmed where even the low end of its interval is above what is promised."""
    for number, fold in enumerate(folds):
        prompts, figures = of_fold(tested, number, priced, min(options.resamples, FOLD_RESAMPLES), options.seed)
        harms = [one for one in figures if one.name == "harm_to_pick"]
        harmed = tuple(one.at for one in harms if judged and prompts >= FEW and one.at and (one.low or 0.0) > HARM)
        yield FoldReport(fold.name, prompts, tuple(figures), harmed)


def _shipped(prompts: pa.Table, rows: pa.Table, targets: Sequence[str]) -> Estimator:
    from router import estimate

    fit = getattr(estimate, "fit", None)
    if not callable(fit):
        raise BadData("router.estimate: has no fit; this needs the estimator")
    return cast(Fit, fit)(prompts, rows, targets=targets)


@contextmanager
def _progress(what: str, steps: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=steps)
        yield lambda: bar.advance(task)

"""`lowpass explain`: decides a request without sending it, and shows the decision as tables."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType, group
from rich.text import Text

from router.api.auth import OPEN, ledger_of
from router.api.parse import parse
from router.choose import check, choose, index
from router.classify.difficulty import add_difficulty
from router.classify.ner import NamesReader
from router.classify.views import dotted
from router.config.load import load_policy
from router.decide.explain import PlacedExplanation, encode, examine, reason
from router.decide.health import Health
from router.estimate.forecast import FRESH_MS
from router.ledger.keys import callers
from router.replay.sides import forecasters
from router.report.render import table as drawn
from router.report.report import Row, made
from router.screen import Screen, Screened
from router.settings import Settings
from router.types.clock import new_id
from router.types.decision import Weighed
from router.types.price import usd_about, usd_text
from router.types.request import Caller, Endpoint, Request
from router.types.target import Secret


def explain_request(
    settings: Settings, body: bytes, headers: Sequence[tuple[bytes, bytes]] = (), key: str = ""
) -> PlacedExplanation:
    """Runs steps 3 to 5 on one chat request, with all targets healthy and with what the ledger has learned, if it
    exists. `key`: name or id of the key that sends the request; empty for a gateway without keys.

    Raises `ClientError`, `ConfigError` and `SettingError`, and `LookupError` for an unknown key.
    """
    config = load_policy(settings.policy)
    rules = index(config, Secret(new_id()))
    ledger, caller = ledger_of(settings), OPEN
    if key:
        with ledger.reading() as connection:
            named = [known for known in callers(connection).values() if key in (known.id, known.name)]
        if not named:
            raise LookupError(f"there is no key '{key}': `lowpass keys list` names them")
        caller = named[0]
    request = parse(Endpoint.CHAT, new_id(), body, headers)
    check(rules, request, caller)
    screened = asyncio.run(_screened(rules.screen, request, caller))
    targets = tuple(config.targets.values())
    forecaster = forecasters(ledger, targets)(targets, FRESH_MS)
    decision, _ = choose(rules, request, caller, screened, Health(time.monotonic), forecaster)
    return examine(add_difficulty(decision, request))


async def _screened(screen: Screen, request: Request, caller: Caller) -> Screened:
    """Screens the request by itself: without a session's history or a second opinion."""
    reader = NamesReader()
    try:
        return screen.alone(request, caller, read=await screen.read(request, reader))
    finally:
        await reader.close()


# A decision as tables.

MAX_FINDINGS = 100
"""Maximum number of findings shown; the causes count all."""


@group()
def explanation(examined: PlacedExplanation) -> Iterator[RenderableType]:
    classification = examined.classification
    others = ", ".join(name for name in classification.classes if name != classification.data_class)
    classes = f"class {classification.data_class}{f' (and {others})' if others else ''}"
    summary = f"route {examined.route} ({examined.strategy}), {classes}, task {classification.task}"
    yield Text(f"{summary}, difficulty {classification.difficulty:.2f}\n\n{reason(encode(examined))}")
    yield from _table("causes", ((cause.data_class, cause.by, cause.count) for cause in classification.causes))
    unshown = len(examined.findings) - MAX_FINDINGS
    rest = [(f"and {unshown} more", "", "", "")] if unshown > 0 else []
    places = (  # the place, never the text
        (each.detector, each.data_class, dotted(each.path), f"{each.start}–{each.end}{'' if each.exact else ' hidden'}")
        for each in examined.findings[:MAX_FINDINGS]
    )
    yield from _table("findings", (*places, *rest))
    if examined.possible:
        possible = ", ".join(sorted({finding.data_class for finding in examined.possible}))
        yield Text(
            f"{len(examined.possible)} of them only possibly so ({possible}): there is no second opinion"
            " here, so they count as found"
        )
    stakes = examined.stakes
    limits = (
        None if stakes.failure_nano is None else f"a failure costs ${usd_text(stakes.failure_nano)}",
        None if stakes.min_pass_rate is None else f"pass rate at least {stakes.min_pass_rate:g}",
        None if stakes.max_nano is None else f"at most ${usd_text(stakes.max_nano)}",
        None if stakes.deadline_ms is None else f"within {stakes.deadline_ms / 1000:g} s",
    )
    if examined.weighed and any(limits):
        yield Text(f"at stake: {', '.join(filter(None, limits))}")
    yield from _table("weighed", map(_weighed, examined.weighed))
    for row in examined.queued:
        yield Text(f"{'spilled' if row.spilled else 'health' if row.degraded else 'queue'}: {row.told()}")
    considered = (
        (
            f"{step.target} ({step.model}{f' at effort {step.effort}' if step.effort else ''})"
            + (f", lowered: {', '.join(step.lowered)}" if step.lowered else ""),
            "placeholders" if step.redacted else "all of it",
            *(bytes(step.cost_usd).decode(), bytes(step.hold_usd).decode()),
            *map(str, (step.input_tokens, step.output_tokens, step.max_output)),
        )
        for step in examined.considered
    )
    yield from _table("considered", considered)
    yield from _table("dropped", ((row.target, row.reason, row.detail) for row in examined.dropped))


def _table(name: str, rows: Iterable[Row]) -> Iterator[RenderableType]:
    report = made(f"explain/{name}", rows)
    if report.rows:
        yield drawn(report)


def _weighed(row: Weighed) -> Row:
    """Returns p ± its standard deviation, cost with its 10–90 % range, and seconds to the first byte and in all."""
    spread = f"{usd_about(row.cost_nano_p10, 2)}–{usd_about(row.cost_nano_p90, 2)}"
    times = f"{row.first_ms / 1000:.1f} / {row.total_ms / 1000:.1f}"
    money = (usd_about(row.cost_nano), spread, times, usd_about(row.value_nano))
    return row.target, f"{row.p:.2f} ± {row.p_sd:.2f}", *money, row.why

"""Plans that ask more than one target: cascade, hedge and vote."""

import asyncio
import unicodedata
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import msgspec
import re2
from msgspec import Raw, structs

from router.dispatch.dispatch import AttemptLoop, Dispatcher, DispatchJob
from router.dispatch.hold import ALONE, CLIENT_GONE, OUTRUN, AttemptOptions, BudgetHold, HedgeRace
from router.dispatch.meter import AnswerCollector
from router.dispatch.stream import CollectedStream, OpenStream, WholeAnswer, give_up
from router.types.attempt import AnswerChoice, ToolCall, Verdict, VerifierRequest, accepted
from router.types.clock import clock_ms
from router.types.decision import Candidate, Cascade, Vote
from router.types.request import Endpoint, Request
from router.types.tables import patterns

# Whole answers as verifiers read them: one `AnswerChoice` per choice, whatever the endpoint.

NOTHING = AnswerChoice()
"""Stands for an answer that can't be read."""
_LENGTH = {"max_output_tokens": "length"}
"""Reasons why a response is incomplete, mapped to chat's finish reasons."""


def unchecked(job: DispatchJob, answered: WholeAnswer) -> VerifierRequest | None:
    """Returns what verifiers may still check of a given answer; None if it was checked or the budget ended it."""
    judged = answered.record.stopped or answered.attempt.verdicts
    return None if judged else verifier_request(job, answered.record.step, answered.reply.body)


async def tee(
    events: AsyncGenerator[bytes], job: DispatchJob, opened: OpenStream, tell: Callable[[VerifierRequest], object]
) -> AsyncGenerator[bytes]:
    """Yields a stream unchanged; at its end calls `tell` with the collected answer unless it was checked or stopped."""
    fold = AnswerCollector(job.request.endpoint)
    try:
        async for part in events:
            fold.feed(part)
            yield part
    finally:
        await events.aclose()
    complete = not opened.record.stopped and job.budget.attempts[-1].outcome == "ok"
    if complete and not (isinstance(opened, CollectedStream) and opened.attempt.verdicts):
        tell(verifier_request(job, opened.record.step, fold.body()))


def verifier_request(job: DispatchJob, step: Candidate, body: Mapping[str, Raw]) -> VerifierRequest:
    """Returns the input of verifiers: the client's own request, and the answer with the values restored."""
    classes = job.gate.classification.classes
    return VerifierRequest(request=job.request, target=step.target, answers=answers(body), classes=classes)


def answers(body: Mapping[str, Raw]) -> tuple[AnswerChoice, ...]:
    """Returns the choices of a whole chat, completions or responses answer; an empty one if it can't be read."""
    try:
        if "output" in body:
            return (_response(body),)
        return tuple(_choice(choice) for choice in msgspec.json.decode(body.get("choices", b"[]"))) or (NOTHING,)
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, TypeError):
        return (NOTHING,)


def _choice(choice: dict[str, Any]) -> AnswerChoice:
    message = choice.get("message") or {}
    text = choice["text"] if "text" in choice else message.get("content")
    if isinstance(text, list):
        text = "".join(part.get("text") or "" for part in text)
    calls = [call.get("function") or call.get("custom") or {} for call in message.get("tool_calls") or ()]
    calls += [message["function_call"]] if message.get("function_call") else []
    return AnswerChoice(
        text=text or "",
        tool_calls=tuple(map(_call, calls)),
        refusal=message.get("refusal") or "",
        finish_reason=choice.get("finish_reason") or "",
    )


def _call(named: dict[str, Any]) -> ToolCall:
    """Returns a tool call: a function has `arguments`, a custom tool has `input`."""
    return ToolCall(named.get("name") or "", named.get("arguments") or named.get("input") or "")


def _response(body: Mapping[str, Raw]) -> AnswerChoice:
    items = msgspec.json.decode(body["output"])
    reason = (msgspec.json.decode(body.get("incomplete_details", b"null")) or {}).get("reason") or ""
    parts = [part for item in items if item.get("type") == "message" for part in item.get("content") or ()]
    calls = tuple(_call(item) for item in items if item.get("type") in ("function_call", "custom_tool_call"))
    return AnswerChoice(
        text="".join(part.get("text") or "" for part in parts),
        tool_calls=calls,
        refusal="".join(part.get("refusal") or "" for part in parts),
        finish_reason=_LENGTH.get(reason, reason) or ("tool_calls" if calls else "stop"),
    )


# Comparable results: a form in which two answers that mean the same are equal.
#
# Numbers, letters of a choice, boxed and announced results, JSON, tool calls and answers of a few words can be
# compared; longer texts can't.

NORMALISE_NOTHING = ""
"""Result of empty, refused and truncated answers, which agree with nothing."""
FEW_WORDS = 4
"""Maximum number of words of an answer that is its own result."""
SHORT = 64
LARGEST = 100
"""Maximum length of a number in characters; a longer one is treated as text."""
_WHOLE = frozenset({"stop", "tool_calls", "function_call", ""})
"""Finish reasons of complete answers."""
_FENCE = re2.compile(r"(?s)^```\w*\s*\n(.*?)\n?```$")
_BOXED = "\\boxed{"
_ANNOUNCED = re2.compile(patterns("dispatch/data/announced.yaml")["announced"])
"""Matches a line that announces the result, in several languages, after NFKC has normalised wide colons."""
_NUMBER = re2.compile(
    r"[-+]?(?:\d{1,3}(?:[ '’]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)*|\.\d+)(?:[eE][-+]?\d{1,3})?(?: ?/ ?\d+)?"
)
_MEASURED = re2.compile(r"^(?:[^=:]{1,20}[=:] ?)?(" + _NUMBER.pattern + r")(?: ?\pL+){0,2}$")
"""Matches a number with its unit, or an equation that ends in one."""
_LETTER = re2.compile(r"^\(?([A-Ja-j])(?:\)|[.:]|$)(?: .*)?$")
_FRACTION = re2.compile(r"\\[dt]?frac ?\{([^{}]+)\} ?\{([^{}]+)\}")
_DRESS = re2.compile(r"\\(?:text\w*|math\w+|left|right|[,;!() ])|\\(?:[$%])|\^\{?\\circ\}?|[*_`\"“”„«»$€£¥%°]")
"""Matches the markup around a result."""
_FORMULA = re2.compile(r"[\\^=+*/<>]")
_ITEM = re2.compile(r"^(?:\d+[.)]|[-*•#])\s")
_SENTENCE = re2.compile(r"[.!?。]\s+")
_GROUPS = re2.compile(r"^[-+]?\d{1,3}(?:[.,]\d{3})+$")
_EXACT = Context(prec=LARGEST + 10)


def comparable(answer: AnswerChoice) -> str | None:
    """Returns an answer's result: `NORMALISE_NOTHING` without an answer; None if it can't be compared."""
    if answer.refusal or answer.finish_reason not in _WHOLE:
        return NORMALISE_NOTHING
    if answer.tool_calls:
        calls = [(call.name, _canonical(call.arguments or "{}") or call.arguments) for call in answer.tool_calls]
        return _encoded(sorted(calls))
    text = unicodedata.normalize("NFKC", answer.text).replace("−", "-").strip()
    fenced = _FENCE.match(text)
    inner = fenced[1].strip() if fenced else text
    structured = _canonical(inner) if inner[:1] in ("{", "[") else None
    return structured or _result(text) if text else NORMALISE_NOTHING


def _canonical(text: str) -> str | None:
    """Returns JSON with sorted names and 1.0 written as 1; None if `text` is no JSON."""
    try:
        return _encoded(_plain(msgspec.json.decode(text)))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_plain(member) for member in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _result(text: str) -> str | None:
    boxed = _boxed(text)
    if boxed is not None:
        return _value(boxed)
    announced = [match[1] for match in _ANNOUNCED.finditer(text)]
    if announced and (value := _value(announced[-1])) is not None:
        return value
    return (None if "\n" in text else _value(text)) or _concluded(text)


def _boxed(text: str) -> str | None:
    """Returns the contents of the last LaTeX box; None without one."""
    start, depth = text.rfind(_BOXED), 1
    if start < 0:
        return None
    inner = text[start + len(_BOXED) :]
    for at, letter in enumerate(inner):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return inner[:at]
    return None


def _value(result: str) -> str | None:
    """Returns the normalised result; None if it is too long for one."""
    bare = " ".join(_DRESS.sub("", _FRACTION.sub(r"\1/\2", result)).split()).rstrip(".!。:;, ")
    bare = bare[1:-1] if bare[:1] == "{" and bare[-1:] == "}" else bare
    if letter := _LETTER.match(bare):
        return str(letter[1]).upper()
    if len(bare) > SHORT or not bare:
        return None
    if measured := _MEASURED.match(bare):
        return _number(measured[1]) or bare
    if _FORMULA.search(bare):
        return bare.replace(" ", "")
    return bare.casefold() if len(bare.split()) <= FEW_WORDS else None


def _concluded(text: str) -> str | None:
    """Returns the letter alone in the last line, or the only number of the last sentence; None for code."""
    line = text.splitlines()[-1].rstrip()
    if line[:1].isspace():
        return None
    if letter := _LETTER.match(_DRESS.sub("", line)):
        return str(letter[1]).upper() if len(line) <= SHORT else None
    last = _SENTENCE.split(_DRESS.sub("", line))[-1]
    numbers = [match[0] for match in _NUMBER.finditer(last)]
    return _number(numbers[0]) if len(numbers) == 1 and not _ITEM.match(line) else None


def _number(written: str) -> str | None:
    """Normalises a number: 1,000 = 1 000 = 1e3 = 2000/2. Returns None for anything else, such as 1.2.3."""
    above, _, below = written.replace(" ", "").replace("'", "").replace("’", "").partition("/")
    numerator, denominator = _decimal(above), _decimal(below or "1")
    return None if numerator is None or not denominator else str(Fraction(numerator) / Fraction(denominator))


def _decimal(written: str) -> Decimal | None:
    """Parses a number. The last of point and comma is decimal; a lone comma before three digits is a separator."""
    if len(written) > LARGEST:
        return None
    point, comma = written.rfind("."), written.rfind(",")
    if point >= 0 and comma >= 0:
        written = written.replace("," if point > comma else ".", "")
    elif _GROUPS.match(written) and (comma >= 0 or written.count(".") > 1):
        written = written.replace(",", "").replace(".", "")
    try:
        return _EXACT.create_decimal(written.replace(",", "."))
    except InvalidOperation:
        return None


# A cascade asks the cheap target first, and a dearer one only if its answer does not pass.


async def cascade(loop: AttemptLoop, levels: int) -> WholeAnswer | OpenStream | None:
    """Returns the first answer that no verifier rejects; that of the last level or of a fallback is not checked.

    If those give none (no budget, no time, no target), returns the answer that was rejected last.
    """
    job, rejected = loop.job, None
    steps = job.plan.steps
    for number, step in enumerate(steps, 1):
        if loop.over or (rejected is not None and not job.time_for(step, clock_ms())):
            break
        checks = number < min(levels, len(steps))
        fallback = number < len(steps) or rejected is not None
        answer = await loop.try_target(step, AttemptOptions(role="cascade", fallback=fallback, whole=checks))
        if answer is None:
            continue
        if not checks or isinstance(answer, OpenStream):
            return answer
        answer = await _checked(job, answer)
        if accepted(answer.attempt.verdicts) is not False:
            return answer.given(job.budget)
        rejected = answer
    return None if rejected is None else rejected.given(job.budget)


async def _checked(job: DispatchJob, answered: WholeAnswer) -> WholeAnswer:
    """Runs the verifiers and sets the answer aside with their verdicts, even if the client leaves meanwhile. No
    verdicts if the deadline passes first."""
    verdicts: tuple[Verdict, ...] = ()
    left_s = None if job.deadline is None else (job.deadline - clock_ms()) / 1000
    try:
        if job.verify is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    verdicts = tuple(await job.verify(verifier_request(job, answered.record.step, answered.reply.body)))
    finally:
        attempt = job.budget.set_aside(answered.attempt, verdicts)
    return structs.replace(answered, attempt=attempt)


# A hedge asks a second target if the first has not begun to answer in time; the first answer is given.

Asking = asyncio.Task[WholeAnswer | OpenStream | None]


async def hedge(loop: AttemptLoop, after_ms: int) -> WholeAnswer | OpenStream | None:
    """Runs a hedge. If the hold can't pay for both at once, the second is asked only after the first has failed."""
    job, steps, race = loop.job, loop.job.plan.steps, HedgeRace()
    if len(steps) < 2:
        return await loop.walk(steps)
    rivals = [asyncio.ensure_future(loop.try_target(steps[0], AttemptOptions(fallback=True, race=race)))]
    winner: Asking | None = None
    try:
        await asyncio.wait(rivals, timeout=after_ms / 1000)
        if not (rivals[0].done() or race.begun or job.late(clock_ms())) and await job.budget.covers(steps[:2]):
            race.on = not rivals[0].done()
        if race.on:
            options = AttemptOptions(role="hedge", fallback=True, race=race)
            rivals.append(asyncio.ensure_future(loop.try_target(steps[1], options)))
        winner = await _first(rivals)
    finally:
        await _end(rivals, winner, job.budget)
    if winner is not None and (answer := winner.result()) is not None:
        record = answer.record
        job.budget.presence.reads_on = record.step.target.reads_on[record.call.stream]
        return answer
    return None if loop.over else await loop.walk(steps[len(rivals) :])


async def _first(rivals: Sequence[Asking]) -> Asking | None:
    """Returns the first rival to answer, or None. A rival whose client has left is not returned: it is cancelled."""
    pending = set(rivals)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for rival in rivals:
            if rival in done and not rival.cancelled() and rival.result() is not None:
                return rival
    return None


async def _end(rivals: Sequence[Asking], winner: Asking | None, budget: BudgetHold) -> None:
    """Cancels the rivals that have not won and charges what they used; without a winner the client has left."""
    losers, left = [rival for rival in rivals if rival is not winner], False
    for rival in losers:
        rival.cancel(None if winner is None else OUTRUN)
    while waiting := [rival for rival in losers if not rival.done()]:
        try:
            await asyncio.wait(waiting)
        except asyncio.CancelledError:  # they end at once, and their cost must be known by then
            left = True
    for rival in losers:
        _drop(rival, OUTRUN, budget)
    if left and winner is not None:
        _drop(winner, CLIENT_GONE, budget)
    if left:
        raise asyncio.CancelledError


def _drop(rival: Asking, outcome: str, budget: BudgetHold) -> None:
    """Charges for an answer that is not given."""
    answer = None if rival.cancelled() or rival.exception() is not None else rival.result()
    if isinstance(answer, WholeAnswer):
        budget.set_aside(answer.attempt)
    elif isinstance(answer, OpenStream):
        give_up(answer.record, answer.response, outcome)


# A vote asks a cheap target several times and accepts its answer if all samples agree.


async def vote(loop: AttemptLoop, samples: int) -> WholeAnswer | OpenStream | None:
    """Returns the first sample if all agree or if it can't be compared; else the answer of the other steps.

    If those give none (no budget, no time, no target), returns the first sample.
    """
    job = loop.job
    step, *others = job.plan.steps
    if samples < 2 or always_the_same(job.request):
        return await loop.walk(job.plan.steps)
    first = await _sample(loop, step, fallback=bool(others))
    if first is None:
        return None if loop.over else await loop.walk(others)
    if await _settled(loop, step, first, samples) or loop.over or not others or not job.time_for(others[0], clock_ms()):
        return first.given(job.budget)
    return await loop.walk(others) or first.given(job.budget)


async def _settled(loop: AttemptLoop, step: Candidate, first: WholeAnswer, samples: int) -> bool:
    """Returns whether no other target needs to be asked."""
    answer = _single_answer(first)
    if answer is None:
        return True
    for _ in range(samples - 1):
        if answer == NORMALISE_NOTHING:
            return False
        if not loop.job.time_for(step, clock_ms()):
            return True
        again = await _sample(loop, step, fallback=True)
        if again is None or _single_answer(again) != answer:
            return False
    return True


async def _sample(loop: AttemptLoop, step: Candidate, *, fallback: bool) -> WholeAnswer | None:
    """Asks for one whole answer, which is set aside."""
    answer = await loop.try_target(step, AttemptOptions(role="vote", fallback=fallback, whole=True))
    if not isinstance(answer, WholeAnswer):
        return None
    return structs.replace(answer, attempt=loop.job.budget.set_aside(answer.attempt))


def _single_answer(answered: WholeAnswer) -> str | None:
    """Returns the comparable result of a single choice; None if there are several choices."""
    choices = answers(answered.reply.body)
    return comparable(choices[0]) if len(choices) == 1 else None


def always_the_same(request: Request) -> bool:
    """Returns whether sampling is deterministic (seed or temperature 0), so agreement would prove nothing."""
    seed, temperature = request.body.get("seed"), request.body.get("temperature")
    if seed is not None and bytes(seed) != b"null":
        return True
    try:
        return temperature is not None and float(bytes(temperature)) == 0
    except ValueError:
        return False


# Carries out a plan: targets in order, or by its tactic.


async def run_plan(dispatcher: Dispatcher, job: DispatchJob) -> WholeAnswer | OpenStream:
    """Returns the answer to give; all other attempts are recorded in the job's hold, even if this raises.

    Raises `UpstreamFailure`, or `EgressDenied` if the egress filter let nothing out.
    """
    loop, plan, tactic = AttemptLoop(dispatcher, job), job.plan, job.plan.tactic
    if tactic is None or job.request.endpoint is Endpoint.EMBEDDINGS:
        answer = await (loop.walk(plan.steps) if len(plan.steps) > 1 else loop.try_target(plan.steps[0], ALONE))
    elif isinstance(tactic, Cascade):
        answer = await cascade(loop, tactic.levels)
    elif isinstance(tactic, Vote):
        answer = await vote(loop, tactic.samples)
    else:
        answer = await hedge(loop, tactic.after_ms)
    if answer is None:
        raise loop.error()
    return answer

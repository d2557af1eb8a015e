"""Loop breaker: stops conversations that repeat themselves without progress."""

import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import structs

from router.budget.loops import (
    MIN_KNOWN_WINDOWS,
    MONTH_MS,
    VARIANTS_PER_REPEAT,
    AgentTurn,
    Chain,
    ChainRow,
    LoopKind,
    LoopRequest,
    LoopRow,
    Loops,
    Scope,
    Subject,
    SubjectRow,
    Tripped,
    answer_ends,
    bits,
    ends,
    read,
    words_of,
)
from router.types.account import INCIDENT, SESSION_TURNS, Account, BudgetBound, Journal, Refused, Unit
from router.types.clock import new_id
from router.types.price import usd_text
from router.types.request import Caller, Latest, Request
from router.types.tables import table

_log = logging.getLogger(__name__)

# Which conversation a request continues: by its own transcript, or because its prompt quotes another request's answer.

MAX_CHAINS = 16_384
"""Maximum number of conversations of two or more turns that are remembered; the least recently active is dropped."""
MAX_MISSED_TURNS = 16
"""Maximum number of consecutive turns served by other processes after which a conversation is still recognised."""
MAX_FIRST_TURNS = 32_768
"""Maximum number of first turns, and of ends of answers, that are remembered; most requests have no successor."""


class Conversations:
    """The known conversations, by the newest turn of each of their callers. A request that builds on an older turn
    starts a new conversation, and a request that is sent again is not a further turn: depth counts, not width."""

    def __init__(self) -> None:
        self.chains = Latest[int | str, Chain](MAX_CHAINS)
        self._first = Latest[int | str, None](MAX_FIRST_TURNS)
        self.answers = Latest[int | str, int](MAX_FIRST_TURNS)
        self._unrelated = Latest[int | str, None](64)
        """Turns that belong to no known conversation, such as the examples before each row of a batch."""

    def follow(self, turn: AgentTurn, caller: str) -> tuple[Chain | None, bool]:
        """Returns the conversation if its previous turn is known, and whether `turn` is its newest turn, sent again."""
        chain = self.chains.get(turn.key)
        if chain is not None and chain.newest == turn.key and chain.size == turn.size:
            return chain, True
        chain = self._quoted_chain(turn) if self.answers else None
        chain = chain or (self._continued_chain(turn) if turn.earlier else None)
        if chain is None:
            self._first.put(turn.key, None)
            return None, False
        self.chains.pop(chain.heads.get(caller, 0), None)
        chain.move(turn, caller)
        self.chains.put(turn.key, chain)
        return chain, False

    def _quoted_chain(self, turn: AgentTurn) -> Chain | None:
        """Returns the conversation whose newest answer the prompt quotes. Only the first such prompt continues it."""
        for end in ends(turn.input_words) or ():
            answered = self.answers.get(end, 0)
            chain = None if answered == turn.key else self._chain_at(answered)
            if chain is not None and chain.newest in (0, answered):
                return chain
        return None

    def _continued_chain(self, turn: AgentTurn) -> Chain | None:
        """Returns the conversation that the transcript continues; first judges its turns served by other processes."""
        missed: list[AgentTurn] = []
        while (before := turn.before()) is not None and len(missed) <= MAX_MISSED_TURNS:
            chain, turn = self._chain_at(before.key), before
            if chain is not None:
                for row in reversed(missed):
                    chain.judge(row, words_of(row))
                return chain
            if before.key in self._unrelated:
                return None
            missed.append(before)
        self._unrelated.put(missed[0].key, None)
        return None

    def _chain_at(self, key: int) -> Chain | None:
        chain = self.chains.get(key)
        return Chain() if chain is None and key in self._first else chain


# Two keys that talk to each other in single prompts: neither transcripts nor answers show it, only their alternation.

SUSPECT_AFTER = 8
"""Number of requests without new content after which a key is suspected of talking to another key."""
MIN_WORDINGS = 4
"""Minimum number of distinct beginnings, and of endings, of a dialogue's prompts; monitors and batches have fewer."""


class TurnPairs:
    """Detects pairs of keys that talk to each other in requests without earlier turns."""

    def __init__(self) -> None:
        self._suspects = Latest[int | str, Subject](64)

    def partner(self, key: str, subject: Subject, keys: Mapping[int | str, Subject], turns: int) -> Subject | None:
        """Returns the key that has strictly alternated with this one for `turns` stale turns, if both vary their
        wording and share at least half of the words of the key with fewer; else None."""
        if subject.row.stale < SUSPECT_AFTER:
            subject.partner, subject.rounds = None, 0
            return None
        self._suspects.put(key, subject)
        name, singles = subject.partner or (None, 0)
        other = None if name is None else keys.get(name)
        if name is None or other is None or other.singles != singles + 1:
            other_key = next((name for name in reversed(self._suspects) if name != key and name in keys), None)
            subject.partner = None if other_key is None else (str(other_key), keys[other_key].singles)
            subject.rounds = 0
            return None
        subject.partner, subject.rounds = (name, other.singles), subject.rounds + 1
        if 2 * subject.rounds < turns:
            return None
        if 2 * min(subject.row.stale, other.row.stale) < turns or not (_varies(subject) and _varies(other)):
            return None
        mine, theirs = subject.memory.words, other.memory.words
        return other if 2 * (mine & theirs).bit_count() >= min(mine.bit_count(), theirs.bit_count()) else None


def _varies(subject: Subject) -> bool:
    begins, ends = ({wording[side] for wording in subject.wordings} for side in (0, 1))
    return min(len(begins), len(ends)) >= MIN_WORDINGS


# Trips of the breaker: whether one still holds, and how processes share them.

MAX_TRIP_MS = 86_400_000
_SQL: dict[str, str] = table("budget/data/loops.yaml")


def resting(row: LoopRow, now_ms: int) -> Tripped | None:
    """Returns the trip that still holds, if any. A trip that has ended is cleared and the streak halved, not reset."""
    if row.tripped is not None and not is_in_force(row.tripped, now_ms):
        row.tripped, row.stale = None, row.stale // 2
    return row.tripped


def copy_trip(row: LoopRow, other: LoopRow, now_ms: int) -> None:
    """Copies a trip by another process into `row`, if it still holds and is newer."""
    mine, theirs = row.tripped, other.tripped
    if theirs is not None and is_in_force(theirs, now_ms) and (mine is None or theirs.at_ms > mine.at_ms):
        row.tripped, row.trips = theirs, max(row.trips, other.trips)


def is_in_force(tripped: Tripped | None, now_ms: int) -> bool:
    return tripped is not None and (tripped.until_ms is None or now_ms < tripped.until_ms)


# The loop breaker counts turns along a conversation, not requests over time: batches are wide, loops are deep.

MAX_SUBJECTS = 8_192
"""Maximum number of sessions, and of keys, that are remembered: about 2 kB each."""
ROW_LIFETIME_MS = 30 * 86_400_000
"""Age in ms after which rows of the table `loops` are deleted."""
ROWS = f"SELECT id, document FROM loops ORDER BY changed_ms DESC LIMIT {4 * MAX_SUBJECTS}"  # noqa: S608 - a constant
"""Query whose result `restore` takes."""


class LoopBreaker:
    """Detects loops from what this process remembers of sessions, keys and conversations. For each request, call
    `check`, and `settled` with its result when the request has ended."""

    def __init__(self, loops: Loops, clock: Callable[[], int], journal: Journal) -> None:
        """`clock` returns Unix ms. The attribute `loops` may be replaced when the policy changes."""
        self.loops = loops
        self.trips: dict[str, int] = dict.fromkeys(LoopKind, 0)
        """Number of trips since the start, by kind."""
        self._clock, self._journal = clock, journal
        self._conversations, self._pairs = Conversations(), TurnPairs()
        self._sessions = Latest[int | str, Subject](MAX_SUBJECTS)
        self._keys = Latest[int | str, Subject](MAX_SUBJECTS)
        self._ended_sessions = Latest[int | str, None](MAX_SUBJECTS)
        """Ids of the accounts of sessions that have used up their turns."""
        self._changed: dict[str, LoopRow] = {}

    def check(self, request: Request, caller: Caller, now_ms: int) -> LoopRequest | Tripped | None:
        """Returns the request, to be passed to `settled`; the trip for which to refuse it; or None if not watched."""
        if not self.loops.enabled or caller.name in self.loops.exempt:
            return None
        if key := self._keys.pop(caller.id, None):
            self._keys[caller.id] = key  # moves it to the end, as the most recently used
        else:
            key = self._keys.put(caller.id, Subject(caller.name or caller.id or "anonymous", LoopKind.RESENT))
        name, session = request.limits.session, None
        place = f"{caller.id}|{name}"
        if name:
            session = self._sessions.get(place) or Subject(name, LoopKind.REPEATS)
            self._sessions.put(place, session)
        is_serial, repeats = not (session or key).open, (session or key).repeats
        watched = LoopRequest(caller, request.model, key, session, place, now_ms, not key.open, is_serial, repeats)
        tripped = (resting(session.row, now_ms) if session else None) or (key.row.tripped and resting(key.row, now_ms))
        tripped = tripped or self._check_turn(watched, request, caller, now_ms)
        if tripped is not None:
            return tripped
        key.singles += watched.single
        for part in (key, session, watched.chain):
            if part is not None:
                part.open += 1
        if watched.repeats.count or watched.chain is not None:
            watched.approaching = self._approaching(watched)
        return watched

    def settled(self, watched: LoopRequest | None, now_ms: int, cost: int, sent: bool, answer: str) -> None:
        """Judges an ended request. `cost`: nano-USD; `sent`: whether it was sent upstream; `answer`: text, if known."""
        if watched is None:
            return
        for part in (watched.key, watched.session, watched.chain):
            if part is not None:
                part.open -= 1
        if not sent:
            return
        self._charge(watched.key, Scope.KEY, cost, now_ms)
        self._changed[f"key|{watched.caller.id}|{watched.key.name}"] = watched.key.row
        if watched.session is not None:
            self._charge(watched.session, Scope.SESSION, cost, now_ms)
            row = watched.session.row
            if row.windows or row.tripped or watched.repeats.count:  # most sessions have none, and are not stored
                self._changed[f"session|{watched.session_key}"] = row
        if watched.turn is not None:
            chain, turn = watched.chain, watched.turn
            if chain is not None and not watched.again:
                chain.judge(turn, words_of(turn), watched.began_ms, now_ms)
            if not turn.media:
                self._judge_repeat(watched, turn, now_ms)
            if watched.single and watched.is_alone and len(self._keys) > 1:  # taking turns needs a second key
                watched.key.judge(turn, bits(turn.input_words, 0))
                self._judge_pair(watched.key, watched.caller, now_ms)
            for end in (answer_ends(answer, turn) or ()) if answer else ():
                self._conversations.answers.put(end, turn.key)

    # Persistence

    def save(self) -> None:
        """Queues the rows changed since the last call for writing; call it about once a second."""
        now, changed, self._changed = self._clock(), self._changed, {}
        for identifier, row in changed.items():
            self._journal.change(_SQL["keep"], (identifier, now, msgspec.json.encode(row).decode()))

    def forget(self) -> None:
        """Queues the deletion of rows older than `ROW_LIFETIME_MS`; call it about once a day."""
        self._journal.change("DELETE FROM loops WHERE changed_ms < ?", (self._clock() - ROW_LIFETIME_MS,))

    def merge(self, rows: Iterable[tuple[str, str]]) -> None:
        """Merges rows from `router.ledger.query.loops`: counts and trips by all processes since the last call."""
        now = self._clock()
        for identifier, document in rows:
            kind, key, name = identifier.split("|", 2)
            if kind == "chain":
                chain_row = msgspec.json.decode(document, type=ChainRow)
                chain = self._conversations.chains.get(int(key))
                if chain is not None:
                    copy_trip(chain.row, chain_row, now)
                elif is_in_force(chain_row.tripped, now):
                    self._conversations.chains.put(int(key), Chain(chain_row))
                continue
            place, subjects = (f"{key}|{name}", self._sessions) if kind == "session" else (key, self._keys)
            other, subject = msgspec.json.decode(document, type=SubjectRow), subjects.get(place)
            if subject is None:
                subjects.put(place, Subject(name, LoopKind.REPEATS if kind == "session" else LoopKind.RESENT, other))
            else:
                mine = subject.row.resent.get(self._journal.owner)
                subject.row.resent |= other.resent | ({self._journal.owner: mine} if mine else {})
                copy_trip(subject.row, other, now)

    def restore(self, rows: Iterable[tuple[str, str]]) -> None:
        """Restores the state from the result of `ROWS`, newest first. Words are not stored: see `LEARNING_TURNS`."""
        oldest_first = list(rows)[::-1]
        for identifier, document in oldest_first:
            if identifier.startswith("chain|"):
                self._conversations.chains.put(
                    int(identifier.split("|")[1]), Chain(msgspec.json.decode(document, type=ChainRow))
                )
        self.merge(oldest_first)

    # A session's requests are counted in the budget store, over all processes.

    def bind(self, bound: BudgetBound, watched: LoopRequest | None) -> BudgetBound:
        """Returns `bound` with an account that counts the session's requests, if `session_turns` limits them."""
        limit = self.loops.session_turns
        if limit is None or watched is None or watched.session is None:
            return bound
        turns = Account(
            id=f"{SESSION_TURNS}|{watched.session_key}",
            budget=SESSION_TURNS,
            scope=Scope.SESSION,
            value=watched.session.name,
            unit=Unit.REQUESTS,
            limit=limit,
            size=1,
        )
        return structs.replace(bound, accounts=(turns, *bound.accounts))

    def end_session(self, refused: Refused, now_ms: int) -> Tripped:
        """Returns the trip of a session that has used up its turns; the first time, records an incident."""
        account, turns = refused.account, refused.spent + refused.held
        reason = f"the session has had {turns} turns, all that it may have"
        tripped = Tripped(
            LoopKind.SESSION_TURNS, Scope.SESSION, account.value, reason, turns, account.limit, now_ms, None
        )
        if account.id not in self._ended_sessions:
            self._ended_sessions.put(account.id, None)
            self._record(tripped, account.id)
        return tripped

    # Before a request is served

    def _check_turn(self, watched: LoopRequest, request: Request, caller: Caller, now_ms: int) -> Tripped | None:
        turn = read(request, caller.id)
        if turn is None:
            return None
        watched.turn, watched.single = turn, not turn.earlier
        watched.chain, watched.again = self._conversations.follow(turn, caller.id)
        if watched.chain is not None:
            watched.is_serial, watched.repeats = not watched.chain.open, watched.chain.repeats
            return self._check_chain(watched, watched.chain, turn, caller, now_ms)
        pair, looped = watched.key.pair, watched.key.looped
        if looped is not None and looped[1] == (request.model, turn.key, turn.size) and is_in_force(looped[0], now_ms):
            return looped[0]
        known = pair is not None and watched.single and watched.key.memory.knows(bits(turn.input_words, 0))
        return pair if known and is_in_force(pair, now_ms) else None

    def _approaching(self, watched: LoopRequest) -> str:
        turn, last = watched.turn, next(reversed(watched.repeats.values()), None)
        counts = {}
        if last is not None and turn is not None and (last.counted or last.request[1:] == (turn.key, turn.size)):
            counts = {watched.repeats.kind: watched.repeats.count}
        if watched.chain is not None:
            counts = {LoopKind.NO_PROGRESS: watched.chain.row.stale, **counts}
        for kind, count in counts.items():
            if count and 2 * count >= self._limit_of(kind):
                return f"{kind} {count}/{self._limit_of(kind)}"
        return ""

    def _limit_of(self, kind: LoopKind) -> int:
        limit: int = getattr(self.loops, kind)
        return limit

    def _check_chain(
        self, watched: LoopRequest, chain: Chain, turn: AgentTurn, caller: Caller, now_ms: int
    ) -> Tripped | None:
        row, limit = chain.row, self.loops.no_progress
        if row.stale >= SUSPECT_AFTER:
            self._changed[f"chain|{turn.key}|"] = row
        tripped = resting(row, now_ms)
        # A caller that is in a conversation only by a chance quotation is not refused.
        is_main_caller = len(row.callers) == 1 or 4 * row.callers[caller.id] >= limit
        if tripped is not None or row.stale < limit or not is_main_caller:
            return tripped
        kind = LoopKind.PING_PONG if len(row.callers) > 1 else LoopKind.NO_PROGRESS
        reason = f"{row.stale} turns of one conversation brought nothing new"
        return self._stop(watched, kind, reason, row.stale, limit, now_ms)

    # After a request has ended

    def _charge(self, subject: Subject, scope: Scope, cost: int, now_ms: int) -> None:
        spike, row = self.loops.spike, subject.row
        if spike is None:
            return
        window = now_ms // spike.window_ms
        if window != row.window:
            remaining_ms = max(0, MONTH_MS - abs(window - row.window) * spike.window_ms)
            row.peak = max(row.spending, row.peak * remaining_ms // MONTH_MS)
            row.windows += row.spending > 0
            row.window, row.spending = window, 0
        row.spending += cost
        limit = max(spike.floor, spike.factor * row.peak)
        # A spike is judged only once the usual spending is known.
        if row.windows < MIN_KNOWN_WINDOWS or row.spending <= limit or row.tripped is not None:
            return
        reason = f"${usd_text(row.spending)} in {spike.window}, where it never spent more than ${usd_text(row.peak)}"
        row.tripped = self._trip(row, LoopKind.SPEND_SPIKE, scope, subject.name, reason, row.spending, limit, now_ms)

    def _judge_repeat(self, watched: LoopRequest, turn: AgentTurn, now_ms: int) -> None:
        chain, session, repeats = watched.chain, watched.session, watched.repeats
        if not watched.is_serial:
            repeats.clear()
            return
        repeat = repeats.add(turn, watched.model, watched.began_ms, now_ms)
        again = repeat.again
        if chain is None:
            resent = (session or watched.key).row.resent
            resent[self._journal.owner] = turn.key, again
            again = sum([count for request, count in resent.values() if request == turn.key]) if again else 0
        repeats.count, kind = max(again, repeat.counted // VARIANTS_PER_REPEAT), repeats.kind
        if not repeats.count or repeats.count < (limit := self._limit_of(kind)):
            return
        reason = f"the same request was sent again {max(again, repeat.counted)} times, one after another"
        count, repeats.count = repeats.count, 0
        repeats.clear()
        tripped = self._stop(watched, kind, reason, count, limit, now_ms)
        if not (chain or session):
            watched.key.looped = tripped, repeat.request

    def _judge_pair(self, key: Subject, caller: Caller, now_ms: int) -> None:
        other = self._pairs.partner(caller.id, key, self._keys, self.loops.no_progress)
        if other is None or is_in_force(key.pair, now_ms):
            return
        stale = key.row.stale + other.row.stale
        reason = f"two keys took turns {2 * key.rounds} times, and {stale} of their requests brought nothing new"
        names = ", ".join(sorted((key.name, other.name)))
        limit = self.loops.no_progress
        key.pair = other.pair = self._trip(key.row, LoopKind.PING_PONG, Scope.PAIR, names, reason, stale, limit, now_ms)
        key.rounds = other.rounds = 0

    # Tripping

    def _stop(self, watched: LoopRequest, kind: LoopKind, reason: str, count: int, limit: int, now_ms: int) -> Tripped:
        """Trips the breaker for the conversation, whichever caller continues it, and for the request's session."""
        chain, session = watched.chain, watched.session
        callers = chain.row.callers if chain else {}
        scope = Scope.PAIR if len(callers) > 1 else Scope.CONVERSATION
        names = {key.name for caller in callers if (key := self._keys.get(caller))} or {watched.key.name}
        if session is not None:
            scope, names = Scope.SESSION, {session.name}
            self._changed[f"session|{watched.session_key}"] = session.row
        row = (chain or session or watched.key).row
        tripped = self._trip(row, kind, scope, ", ".join(sorted(names)), reason, count, limit, now_ms)
        for part in (chain, session):
            if part is not None:
                part.row.tripped = tripped
        return tripped

    def _trip(
        self, row: LoopRow, kind: LoopKind, scope: Scope, subject: str, reason: str, count: int, limit: int, now_ms: int
    ) -> Tripped:
        """Records and returns a trip; each further trip of the same row lasts twice as long, up to a day."""
        pause_ms = min(self.loops.cool_down_ms << min(row.trips, 32), max(MAX_TRIP_MS, self.loops.cool_down_ms))
        row.trips += 1
        tripped = Tripped(kind, scope, subject, reason, count, limit, now_ms, now_ms + pause_ms)
        self._record(tripped, new_id())
        return tripped

    def _record(self, tripped: Tripped, identifier: str) -> None:
        self.trips[tripped.kind] += 1
        _log.warning("loop breaker: %s: %s; that %s is refused", tripped.kind, tripped.reason, tripped.scope)
        row = (tripped.at_ms, tripped.kind, tripped.scope, tripped.subject, tripped.reason, tripped.until_ms)
        self._journal.add(INCIDENT, (identifier, *row))

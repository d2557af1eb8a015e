"""Stops conversations that go round in circles."""

import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import structs

from router.budget.loops import (
    MONTH_MS,
    RETRIES,
    SEASONED,
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
    words,
)
from router.types.account import INCIDENT, SESSION_TURNS, Account, BudgetBound, Journal, Refused, Unit
from router.types.clock import new_id
from router.types.price import usd_text
from router.types.request import Caller, Latest, Request
from router.types.tables import table

_log = logging.getLogger(__name__)

# Which conversation a request continues: by its own transcript, or because its prompt is somebody's answer.

KEPT = 16_384
"""Conversations of two turns or more that are remembered; the one that was silent for longest is forgotten."""
LOOKBACK = 16
"""Turns of a conversation that other processes may have served in between."""
KEPT_FIRST = 32_768
"""First turns, and the two ends of answers: most requests have no successor."""


class Conversations:
    """A conversation goes on from the newest turn of any of its callers. What branches off an older one is a new one,
    and a request that is sent again, however often, is not a further turn: depth counts, not width."""

    def __init__(self) -> None:
        self.chains = Latest[int | str, Chain](KEPT)
        self._first = Latest[int | str, None](KEPT_FIRST)
        self.answers = Latest[int | str, int](KEPT_FIRST)
        self._strange = Latest[int | str, None](64)
        """Turns of which no conversation was found: examples, before each row of a batch."""

    def follow(self, turn: AgentTurn, caller: str) -> tuple[Chain | None, bool]:
        """The conversation, if the turn before was seen; and whether this is its newest request, sent again."""
        chain = self.chains.get(turn.key)
        if chain is not None and chain.newest == turn.key and chain.size == turn.size:
            return chain, True
        chain = self._quoted(turn) if self.answers else None
        chain = chain or (self._continued(turn) if turn.earlier else None)
        if chain is None:
            self._first.put(turn.key, None)
            return None, False
        self.chains.pop(chain.heads.get(caller, 0), None)
        chain.move(turn, caller)
        self.chains.put(turn.key, chain)
        return chain, False

    def _quoted(self, turn: AgentTurn) -> Chain | None:
        """The conversation whose newest answer was heard. What many hear makes no turns of one conversation."""
        for end in ends(turn.input_words) or ():
            answered = self.answers.get(end, 0)
            chain = None if answered == turn.key else self._from(answered)
            if chain is not None and chain.newest in (0, answered):
                return chain
        return None

    def _continued(self, turn: AgentTurn) -> Chain | None:
        """The conversation of its own transcript. What other processes have served of it in between is judged now."""
        missed: list[AgentTurn] = []
        while (before := turn.before()) is not None and len(missed) <= LOOKBACK:
            chain, turn = self._from(before.key), before
            if chain is not None:
                for row in reversed(missed):
                    chain.judge(row, words(row))
                return chain
            if before.key in self._strange:
                return None
            missed.append(before)
        self._strange.put(missed[0].key, None)
        return None

    def _from(self, key: int) -> Chain | None:
        chain = self.chains.get(key)
        return Chain() if chain is None and key in self._first else chain


# Two keys that talk to each other in single prompts: neither transcripts nor answers show it, but they take turns.

SUSPECT = 8
"""Requests without news from which a key is suspected to answer somebody."""
WORDINGS = 4
"""A monitor says the same again and again, and a batch has a template; two who talk have more than three ways to begin,
and to end."""


class TurnPairs:
    def __init__(self) -> None:
        self._suspects = Latest[int | str, Subject](64)

    def partner(self, key: str, subject: Subject, keys: Mapping[int | str, Subject], turns: int) -> Subject | None:
        """The key with which this one has taken `turns` turns, strictly by turns and in the same few words: both vary
        them, and at least half of the one's are the other's."""
        if subject.row.stale < SUSPECT:
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
    begins, ends = ({wording[place] for wording in subject.wordings} for place in (0, 1))
    return min(len(begins), len(ends)) >= WORDINGS


# A trip of the breaker: how long it lasts, and the row that shows it.

LONGEST_MS = 86_400_000
_SQL: dict[str, str] = table("budget/data/loops.yaml")


def resting(row: LoopRow, now_ms: int) -> Tripped | None:
    """What still holds. When it is over, half of the streak is forgiven: a loop that goes on trips again soon."""
    if row.tripped is not None and not holds(row.tripped, now_ms):
        row.tripped, row.stale = None, row.stale // 2
    return row.tripped


def stop_as(row: LoopRow, other: LoopRow, now_ms: int) -> None:
    """What another process has stopped is stopped here too."""
    mine, theirs = row.tripped, other.tripped
    if theirs is not None and holds(theirs, now_ms) and (mine is None or theirs.at_ms > mine.at_ms):
        row.tripped, row.trips = theirs, max(row.trips, other.trips)


def holds(tripped: Tripped | None, now_ms: int) -> bool:
    return tripped is not None and (tripped.until_ms is None or now_ms < tripped.until_ms)


# The loop breaker. It counts along conversations, not requests in time: batches are wide, loops are deep.

BREAKER_KEPT = 8_192
"""Sessions, and keys, that are remembered: about 2 kB each."""
KEPT_MS = 30 * 86_400_000
"""How long rows of `loops` are worth restoring."""
ROWS = f"SELECT id, document FROM loops ORDER BY changed_ms DESC LIMIT {4 * BREAKER_KEPT}"  # noqa: S608 - a constant
"""What `restore` reads."""


class LoopBreaker:
    """What one process remembers of who repeats what. Call `check`, then `settled` with what it returned, once a
    request."""

    def __init__(self, loops: Loops, clock: Callable[[], int], journal: Journal) -> None:
        """`clock` gives Unix ms. `loops` may be replaced when the policy changes."""
        self.loops = loops
        self.trips: dict[str, int] = dict.fromkeys(LoopKind, 0)
        """How often it tripped since the start, by kind."""
        self._clock, self._journal = clock, journal
        self._talks, self._pairs = Conversations(), TurnPairs()
        self._sessions = Latest[int | str, Subject](BREAKER_KEPT)
        self._keys = Latest[int | str, Subject](BREAKER_KEPT)
        self._ended = Latest[int | str, None](BREAKER_KEPT)
        """Accounts of sessions that had all of their turns."""
        self._changed: dict[str, LoopRow] = {}

    def check(self, request: Request, caller: Caller, now_ms: int) -> LoopRequest | Tripped | None:
        """The request, of which `settled` has to hear when it has ended; or why it must not be served. None: requests
        of its key are not watched."""
        if not self.loops.enabled or caller.name in self.loops.exempt:
            return None
        if key := self._keys.pop(caller.id, None):
            self._keys[caller.id] = key  # the latest now
        else:
            key = self._keys.put(caller.id, Subject(caller.name or caller.id or "anonymous", LoopKind.RESENT))
        name, session = request.limits.session, None
        place = f"{caller.id}|{name}"
        if name:
            session = self._sessions.get(place) or Subject(name, LoopKind.REPEATS)
            self._sessions.put(place, session)
        waited, repeats = not (session or key).open, (session or key).repeats
        watched = LoopRequest(caller, request.model, key, session, place, now_ms, not key.open, waited, repeats)
        tripped = (resting(session.row, now_ms) if session else None) or (key.row.tripped and resting(key.row, now_ms))
        tripped = tripped or self._look(watched, request, caller, now_ms)
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
        """`cost` in nano-USD; `sent`: it left for an upstream; `answer`: its text, as far as that is known."""
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
            if row.windows or row.tripped or watched.repeats.count:  # most sessions never get there
                self._changed[f"session|{watched.place}"] = row
        if watched.turn is not None:
            chain, turn = watched.chain, watched.turn
            if chain is not None and not watched.again:
                chain.judge(turn, words(turn), watched.began_ms, now_ms)
            if not turn.media:
                self._judge_repeat(watched, turn, now_ms)
            if watched.single and watched.quiet and len(self._keys) > 1:  # a key alone has none to take turns with
                watched.key.hear(turn, bits(turn.input_words, 0))
                self._judge_pair(watched.key, watched.caller, now_ms)
            for end in (answer_ends(answer, turn) or ()) if answer else ():
                self._talks.answers.put(end, turn.key)

    # Rows

    def save(self) -> None:
        """Queues what changed since the last call; once a second is often enough."""
        now, changed, self._changed = self._clock(), self._changed, {}
        for identifier, row in changed.items():
            self._journal.change(_SQL["keep"], (identifier, now, msgspec.json.encode(row).decode()))

    def forget(self) -> None:
        """Queues the end of rows too old to matter; once a day is often enough."""
        self._journal.change("DELETE FROM loops WHERE changed_ms < ?", (self._clock() - KEPT_MS,))

    def merge(self, rows: Iterable[tuple[str, str]]) -> None:
        """The result of `router.ledger.query.loops`: what all processes have counted and stopped in the meantime."""
        now = self._clock()
        for identifier, document in rows:
            kind, key, name = identifier.split("|", 2)
            if kind == "chain":
                stopped = msgspec.json.decode(document, type=ChainRow)
                chain = self._talks.chains.get(int(key))
                if chain is not None:
                    stop_as(chain.row, stopped, now)
                elif holds(stopped.tripped, now):
                    self._talks.chains.put(int(key), Chain(stopped))
                continue
            place, subjects = (f"{key}|{name}", self._sessions) if kind == "session" else (key, self._keys)
            other, subject = msgspec.json.decode(document, type=SubjectRow), subjects.get(place)
            if subject is None:
                subjects.put(place, Subject(name, LoopKind.REPEATS if kind == "session" else LoopKind.RESENT, other))
            else:
                mine = subject.row.resent.get(self._journal.owner)
                subject.row.resent |= other.resent | ({self._journal.owner: mine} if mine else {})
                stop_as(subject.row, other, now)

    def restore(self, rows: Iterable[tuple[str, str]]) -> None:
        """The result of `ROWS`. Words are not kept: see `LEARNING`."""
        oldest_first = list(rows)[::-1]
        for identifier, document in oldest_first:
            if identifier.startswith("chain|"):
                self._talks.chains.put(
                    int(identifier.split("|")[1]), Chain(msgspec.json.decode(document, type=ChainRow))
                )
        self.merge(oldest_first)

    # A session's whole life is counted where the budgets are, by all processes together.

    def bind(self, bound: BudgetBound, watched: LoopRequest | None) -> BudgetBound:
        """With the account that counts a session's requests, where it may not have as many as it wants."""
        most = self.loops.session_turns
        if most is None or watched is None or watched.session is None:
            return bound
        turns = Account(
            id=f"{SESSION_TURNS}|{watched.place}",
            budget=SESSION_TURNS,
            scope=Scope.SESSION,
            value=watched.session.name,
            unit=Unit.REQUESTS,
            limit=most,
            size=1,
        )
        return structs.replace(bound, accounts=(turns, *bound.accounts))

    def end_session(self, refused: Refused, now_ms: int) -> Tripped:
        """What a session hears that had all of its turns; an incident the first time."""
        account, turns = refused.account, refused.spent + refused.held
        reason = f"the session has had {turns} turns, all that it may have"
        tripped = Tripped(
            LoopKind.SESSION_TURNS, Scope.SESSION, account.value, reason, turns, account.limit, now_ms, None
        )
        if account.id not in self._ended:
            self._ended.put(account.id, None)
            self._tell(tripped, account.id)
        return tripped

    # Before a request is served

    def _look(self, watched: LoopRequest, request: Request, caller: Caller, now_ms: int) -> Tripped | None:
        turn = read(request, caller.id)
        if turn is None:
            return None
        watched.turn, watched.single = turn, not turn.earlier
        watched.chain, watched.again = self._talks.follow(turn, caller.id)
        if watched.chain is not None:
            watched.waited, watched.repeats = not watched.chain.open, watched.chain.repeats
            return self._chained(watched, watched.chain, turn, caller, now_ms)
        pair, looped = watched.key.pair, watched.key.looped
        if looped is not None and looped[1] == (request.model, turn.key, turn.size) and holds(looped[0], now_ms):
            return looped[0]
        known = pair is not None and watched.single and watched.key.memory.knows(bits(turn.input_words, 0))
        return pair if known and holds(pair, now_ms) else None

    def _approaching(self, watched: LoopRequest) -> str:
        turn, last = watched.turn, next(reversed(watched.repeats.values()), None)
        counts = {}
        if last is not None and turn is not None and (last.counted or last.request[1:] == (turn.key, turn.size)):
            counts = {watched.repeats.kind: watched.repeats.count}
        if watched.chain is not None:
            counts = {LoopKind.NO_PROGRESS: watched.chain.row.stale, **counts}
        for kind, count in counts.items():
            if count and 2 * count >= self._most(kind):
                return f"{kind} {count}/{self._most(kind)}"
        return ""

    def _most(self, kind: LoopKind) -> int:
        most: int = getattr(self.loops, kind)
        return most

    def _chained(
        self, watched: LoopRequest, chain: Chain, turn: AgentTurn, caller: Caller, now_ms: int
    ) -> Tripped | None:
        row, most = chain.row, self.loops.no_progress
        if row.stale >= SUSPECT:
            self._changed[f"chain|{turn.key}|"] = row
        tripped = resting(row, now_ms)
        # A caller whom a chance quotation drew into a conversation is not refused for it.
        leads = len(row.callers) == 1 or 4 * row.callers[caller.id] >= most
        if tripped is not None or row.stale < most or not leads:
            return tripped
        kind = LoopKind.PING_PONG if len(row.callers) > 1 else LoopKind.NO_PROGRESS
        reason = f"{row.stale} turns of one conversation brought nothing new"
        return self._stop(watched, kind, reason, row.stale, most, now_ms)

    # Once it is over

    def _charge(self, subject: Subject, scope: Scope, cost: int, now_ms: int) -> None:
        spike, row = self.loops.spike, subject.row
        if spike is None:
            return
        window = now_ms // spike.window_ms
        if window != row.window:
            faded = max(0, MONTH_MS - abs(window - row.window) * spike.window_ms)
            row.peak = max(row.spending, row.peak * faded // MONTH_MS)
            row.windows += row.spending > 0
            row.window, row.spending = window, 0
        row.spending += cost
        limit = max(spike.floor, spike.factor * row.peak)
        # Only where what is usual is known.
        if row.windows < SEASONED or row.spending <= limit or row.tripped is not None:
            return
        reason = f"${usd_text(row.spending)} in {spike.window}, where it never spent more than ${usd_text(row.peak)}"
        row.tripped = self._trip(row, LoopKind.SPEND_SPIKE, scope, subject.name, reason, row.spending, limit, now_ms)

    def _judge_repeat(self, watched: LoopRequest, turn: AgentTurn, now_ms: int) -> None:
        chain, session, repeats = watched.chain, watched.session, watched.repeats
        if not watched.waited:
            repeats.clear()
            return
        repeat = repeats.add(turn, watched.model, watched.began_ms, now_ms)
        again = repeat.again
        if chain is None:
            resent = (session or watched.key).row.resent
            resent[self._journal.owner] = turn.key, again
            again = sum([count for request, count in resent.values() if request == turn.key]) if again else 0
        repeats.count, kind = max(again, repeat.counted // RETRIES), repeats.kind
        if not repeats.count or repeats.count < (most := self._most(kind)):
            return
        reason = f"the same request was sent again {max(again, repeat.counted)} times, one after another"
        count, repeats.count = repeats.count, 0
        repeats.clear()
        tripped = self._stop(watched, kind, reason, count, most, now_ms)
        if not (chain or session):
            watched.key.looped = tripped, repeat.request

    def _judge_pair(self, key: Subject, caller: Caller, now_ms: int) -> None:
        other = self._pairs.partner(caller.id, key, self._keys, self.loops.no_progress)
        if other is None or holds(key.pair, now_ms):
            return
        stale = key.row.stale + other.row.stale
        reason = f"two keys took turns {2 * key.rounds} times, and {stale} of their requests brought nothing new"
        names = ", ".join(sorted((key.name, other.name)))
        most = self.loops.no_progress
        key.pair = other.pair = self._trip(key.row, LoopKind.PING_PONG, Scope.PAIR, names, reason, stale, most, now_ms)
        key.rounds = other.rounds = 0

    # Tripping

    def _stop(self, watched: LoopRequest, kind: LoopKind, reason: str, count: int, most: int, now_ms: int) -> Tripped:
        """A conversation is refused whoever goes on with it, and the session that it belongs to as a whole."""
        chain, session = watched.chain, watched.session
        callers = chain.row.callers if chain else {}
        scope = Scope.PAIR if len(callers) > 1 else Scope.CONVERSATION
        names = {key.name for caller in callers if (key := self._keys.get(caller))} or {watched.key.name}
        if session is not None:
            scope, names = Scope.SESSION, {session.name}
            self._changed[f"session|{watched.place}"] = session.row
        row = (chain or session or watched.key).row
        tripped = self._trip(row, kind, scope, ", ".join(sorted(names)), reason, count, most, now_ms)
        for part in (chain, session):
            if part is not None:
                part.row.tripped = tripped
        return tripped

    def _trip(
        self, row: LoopRow, kind: LoopKind, scope: Scope, subject: str, reason: str, count: int, most: int, now_ms: int
    ) -> Tripped:
        """Each further trip of the same row rests twice as long."""
        rest = min(self.loops.cool_down_ms << min(row.trips, 32), max(LONGEST_MS, self.loops.cool_down_ms))
        row.trips += 1
        tripped = Tripped(kind, scope, subject, reason, count, most, now_ms, now_ms + rest)
        self._tell(tripped, new_id())
        return tripped

    def _tell(self, tripped: Tripped, identifier: str) -> None:
        self.trips[tripped.kind] += 1
        _log.warning("loop breaker: %s: %s; that %s is refused", tripped.kind, tripped.reason, tripped.scope)
        row = (tripped.at_ms, tripped.kind, tripped.scope, tripped.subject, tripped.reason, tripped.until_ms)
        self._journal.add(INCIDENT, (identifier, *row))

"""The loop breaker. It counts along conversations, not requests in time: batches are wide, loops are deep."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from router.budget.loops.conversations import Conversations
from router.budget.loops.fingerprint import Turn, Words, read, words
from router.budget.loops.incidents import Incidents, holds, resting, stop_as
from router.budget.loops.loops import Kind, Loops, Scope, Tripped
from router.budget.loops.pairs import SUSPECT, Pairs
from router.budget.loops.streak import Asked, Chain, ChainRow, Latest, Subject, SubjectRow
from router.types.journal import Journal
from router.types.money import usd_text
from router.types.request import Caller, Request

KEPT = 8_192
"""Sessions, and keys, that are remembered: about 2 kB each."""
IN_PROGRESS = 65_536
"""More requests than that are never in progress: what is older was not settled, and is forgotten."""
SAVED_TURNS = 16
"""A session is written down every so many turns: most never get there."""
KEPT_MS = 30 * 86_400_000
"""How long rows of `loops` are worth restoring."""

_KEEP = (
    "INSERT INTO loops (id, changed_ms, document) VALUES (?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET changed_ms = excluded.changed_ms, document = excluded.document"
)
ROWS = f"SELECT id, document FROM loops ORDER BY changed_ms DESC LIMIT {4 * KEPT}"  # noqa: S608 - a constant
"""What `restore` reads."""
_FORGET = "DELETE FROM loops WHERE changed_ms < ?"
_CHAIN_ROW = msgspec.json.Decoder(ChainRow)
_SUBJECT_ROW = msgspec.json.Decoder(SubjectRow)


class Breaker:
    """What one process remembers of who repeats what. Call `check`, then `settled`, once a request."""

    def __init__(self, loops: Loops, clock: Callable[[], int], journal: Journal) -> None:
        """`clock` gives Unix ms. `loops` may be replaced when the policy changes."""
        self.loops = loops
        self._clock, self._journal, self._incidents = clock, journal, Incidents(journal)
        self._talks, self._pairs = Conversations(), Pairs()
        self._sessions: Latest[Subject] = Latest(KEPT)
        self._keys: Latest[Subject] = Latest(KEPT)
        self._asked: Latest[Asked] = Latest(IN_PROGRESS)
        self._changed: dict[str, ChainRow | SubjectRow] = {}

    @property
    def trips(self) -> Mapping[str, int]:
        """How often it tripped since the start, by kind."""
        return self._incidents.counts

    def check(self, request: Request, caller: Caller, now_ms: int) -> Tripped | None:
        """Why this request must not be served, if so. Where it returns None, `settled` has to follow."""
        if not self.loops.enabled or caller.name in self.loops.exempt:
            return None
        asked = self._admit(request, caller)
        tripped = (
            self._resting(asked, now_ms) or self._worn_out(asked, now_ms) or self._look(asked, request, caller, now_ms)
        )
        if tripped is None:
            self._begin(request.id, asked)
        return tripped

    def settled(self, request: Request, caller: Caller, *, cost: int, sent: bool, answer: str | None = None) -> None:
        """`cost` in nano-USD; `sent`: it left for an upstream; `answer`: its text, where that is known."""
        asked = self._asked.pop(request.id, None)
        if asked is None:
            return
        for one in (asked.key, asked.session, asked.chain):
            if one is not None:
                one.open -= 1
        if not sent:
            return
        now = self._clock()
        self._spend(asked, caller, cost, now)
        if asked.turn is not None:
            self._judge(asked, asked.turn, request.model, caller, now)
            if answer:
                self._talks.answered(asked.turn, answer)

    # Rows

    def save(self) -> None:
        """Queues what changed since the last call; once a second is often enough."""
        now, changed = self._clock(), self._changed
        self._changed = {}
        for identifier, row in changed.items():
            self._journal.change(_KEEP, (identifier, now, msgspec.json.encode(row).decode()))

    def forget(self) -> None:
        """Queues the end of rows too old to matter; once a day is often enough."""
        self._journal.change(_FORGET, (self._clock() - KEPT_MS,))

    def merge(self, rows: Iterable[tuple[str, str]]) -> None:
        """The result of `router.ledger.query.loops`: what all processes have counted and stopped in the meantime."""
        now = self._clock()
        for identifier, document in rows:
            kind, key, name = identifier.split("|", 2)
            if kind == "chain":
                stopped = _CHAIN_ROW.decode(document)
                chain = self._talks.chains.get(int(key))
                if chain is not None:
                    stop_as(chain.row, stopped, now)
                elif holds(stopped.tripped, now):
                    self._talks.chains.put(int(key), Chain(stopped))
                continue
            place, subjects = (f"{key}|{name}", self._sessions) if kind == "session" else (key, self._keys)
            other, subject = _SUBJECT_ROW.decode(document), subjects.get(place)
            if subject is None:
                subjects.put(place, Subject(name, other))
            else:
                counts = subject.row.counts
                counts |= {owner: max(count, counts.get(owner, 0)) for owner, count in other.counts.items()}
                stop_as(subject.row, other, now)

    def restore(self, rows: Iterable[tuple[str, str]]) -> None:
        """The result of `ROWS`. Words are not kept: see `LEARNING`."""
        for identifier, document in reversed(list(rows)):
            kind, key, name = identifier.split("|", 2)
            if kind == "chain":
                self._talks.chains.put(int(key), Chain(_CHAIN_ROW.decode(document)))
            elif kind == "session":
                self._sessions.put(f"{key}|{name}", Subject(name, _SUBJECT_ROW.decode(document)))
            else:
                self._keys.put(key, Subject(name, _SUBJECT_ROW.decode(document)))

    # Before a request is served

    def _admit(self, request: Request, caller: Caller) -> Asked:
        key, name, session, place = self._keys.get(caller.id), request.limits.session, None, ""
        if key is None:
            key = Subject(caller.name or caller.id or "anonymous")
        self._keys.put(caller.id, key)
        if name:
            place = f"{caller.id}|{name}"
            session = self._sessions.get(place) or Subject(name)
            self._sessions.put(place, session)
        return Asked(key, session, place, session is None or not session.open, not key.open)

    def _resting(self, asked: Asked, now_ms: int) -> Tripped | None:
        for subject in (asked.session, asked.key):
            tripped = None if subject is None else resting(subject.row, now_ms)
            if tripped is not None:
                return tripped
        return None

    def _worn_out(self, asked: Asked, now_ms: int) -> Tripped | None:
        """The end of a session's life."""
        most, session = self.loops.session_turns, asked.session
        if session is None or most is None or session.row.turns < most:
            return None
        row, kind = session.row, Kind.SESSION_TURNS
        reason = f"the session has had {row.turns} turns, all that it may have"
        tripped = Tripped(kind, Scope.SESSION, session.name, reason, row.turns, most, now_ms, None)
        if row.ended != kind:
            row.ended = kind
            self._incidents.tell(tripped)
        return tripped

    def _look(self, asked: Asked, request: Request, caller: Caller, now_ms: int) -> Tripped | None:
        turn = read(request, caller.id)
        if turn is None:
            return None
        asked.turn = turn
        asked.chain, asked.again = self._talks.follow(turn, caller.id)
        if asked.chain is not None:
            asked.waited = not asked.chain.open
            return self._chained(asked, asked.chain, turn, caller, now_ms)
        pair = asked.key.pair
        if asked.single and holds(pair, now_ms) and asked.key.memory.knows(words(turn).heard):
            return pair
        return None

    def approaching(self, request_id: str) -> str:
        """What will stop the conversation if it goes on, such as `no_progress 18/24`; empty below half of a limit."""
        asked = self._asked.get(request_id)
        if asked is None:
            return ""
        loops, chain, session = self.loops, asked.chain, asked.session
        counts = [(Kind.REPEATS, asked.key.resent if asked.single else 0, loops.resent)]
        if chain is not None:
            counts += [
                (Kind.NO_PROGRESS, chain.row.stale, loops.no_progress),
                (Kind.REPEATS, chain.again, loops.resent),
            ]
        if session is not None:
            counts.append((Kind.REPEATS, session.row.stale, loops.repeats))
        kind, seen, most = max(counts, key=lambda count: count[1] / count[2])
        return f"{kind} {seen}/{most}" if 2 * seen >= most else ""

    def _chained(self, asked: Asked, chain: Chain, turn: Turn, caller: Caller, now_ms: int) -> Tripped | None:
        row, most = chain.row, self.loops.no_progress
        if row.stale >= SUSPECT:
            self._changed[f"chain|{turn.key}|"] = row
        tripped = resting(row, now_ms)
        if tripped is not None or row.stale < most or not _leads(row, caller.id, most):
            return tripped
        kind = Kind.PING_PONG if len(row.callers) > 1 else Kind.NO_PROGRESS
        reason = f"{row.stale} turns of one conversation brought nothing new"
        return self._trip_chain(asked, chain, kind, reason, row.stale, most, now_ms)

    def _begin(self, request_id: str, asked: Asked) -> None:
        self._asked.put(request_id, asked)
        asked.key.open += 1
        asked.key.singles += asked.single
        if asked.session is not None:
            asked.session.open += 1
        if asked.chain is not None:
            asked.chain.open += 1

    # Once it is over

    def _spend(self, asked: Asked, caller: Caller, cost: int, now_ms: int) -> None:
        self._count(asked.key)
        self._charge(asked.key, Scope.KEY, cost, now_ms)
        self._changed[f"key|{caller.id}|{asked.key.name}"] = asked.key.row
        if asked.session is not None:
            self._count(asked.session)
            self._charge(asked.session, Scope.SESSION, cost, now_ms)
            row, most = asked.session.row, self.loops.session_turns
            if row.turns % SAVED_TURNS == 0 or row.tripped or (most is not None and 2 * row.turns >= most):
                self._changed[f"session|{asked.place}"] = row

    def _count(self, subject: Subject) -> None:
        counts, owner = subject.row.counts, self._journal.owner
        counts[owner] = counts.get(owner, 0) + 1

    def _charge(self, subject: Subject, scope: Scope, cost: int, now_ms: int) -> None:
        spike, row = self.loops.spike, subject.row
        limit = subject.spend(cost, spike, now_ms)
        if spike is None or limit is None or row.tripped is not None:
            return
        reason = f"${usd_text(row.spending)} in {spike.window}, where it never spent more than ${usd_text(row.peak)}"
        row.tripped = self._trip(row, Kind.SPEND_SPIKE, scope, subject.name, reason, row.spending, limit, now_ms)

    def _judge(self, asked: Asked, turn: Turn, model: str, caller: Caller, now_ms: int) -> None:
        paired = asked.single and asked.quiet
        if asked.session is None and asked.chain is None and not paired:
            return
        found = words(turn)
        if asked.chain is not None:
            self._judge_chain(asked, asked.chain, turn, found, now_ms)
        if asked.session is not None:
            self._judge_session(asked.session, asked.alone, turn, found, now_ms)
        if paired:
            if asked.session is None and not turn.media:
                self._judge_resent(asked.key, asked.key.again(turn, model, now_ms), now_ms)
            asked.key.hear(turn, found.heard)
            self._judge_pair(asked.key, caller, now_ms)

    def _judge_session(self, session: Subject, alone: bool, turn: Turn, found: Words, now_ms: int) -> None:
        """Requests that do not wait for each other are no loop."""
        if not alone:
            session.row.stale = 0
            return
        session.judge(turn, found)
        row, most = session.row, self.loops.repeats
        if row.stale >= most and row.tripped is None:
            reason = f"{row.stale} requests of the session, one after another, had no new word"
            row.tripped = self._trip(row, Kind.REPEATS, Scope.SESSION, session.name, reason, row.stale, most, now_ms)

    def _judge_chain(self, asked: Asked, chain: Chain, turn: Turn, found: Words, now_ms: int) -> None:
        if not asked.again:
            chain.judge(turn, found)
            return
        chain.again += asked.waited
        again, most = chain.again, self.loops.resent
        if again >= most and chain.row.tripped is None:
            reason = f"the same request of a conversation was sent again {again} times, one after another"
            self._trip_chain(asked, chain, Kind.REPEATS, reason, again, most, now_ms)

    def _judge_resent(self, key: Subject, again: int, now_ms: int) -> None:
        most = self.loops.resent
        if again >= most and not holds(key.pair, now_ms):
            reason = f"the same request was sent again {again} times, one after another"
            key.pair = self._trip(key.row, Kind.REPEATS, Scope.CONVERSATION, key.name, reason, again, most, now_ms)
            key.resent = 0

    def _judge_pair(self, key: Subject, caller: Caller, now_ms: int) -> None:
        other = self._pairs.partner(caller.id, key, self._keys, self.loops.no_progress)
        if other is None or holds(key.pair, now_ms):
            return
        seen = key.row.stale + other.row.stale
        reason = f"two keys took turns {2 * key.rounds} times, and {seen} of their requests brought nothing new"
        names = ", ".join(sorted((key.name, other.name)))
        most = self.loops.no_progress
        key.pair = other.pair = self._trip(key.row, Kind.PING_PONG, Scope.PAIR, names, reason, seen, most, now_ms)
        key.rounds = other.rounds = 0

    # Tripping

    def _trip_chain(
        self, asked: Asked, chain: Chain, kind: Kind, reason: str, seen: int, limit: int, now_ms: int
    ) -> Tripped:
        """A conversation is refused whoever goes on with it, and the session that it belongs to as a whole."""
        row, chain.again = chain.row, 0
        scope, subject = self._subject(asked, row)
        row.tripped = self._trip(row, kind, scope, subject, reason, seen, limit, now_ms)
        if asked.session is not None:
            asked.session.row.tripped = row.tripped
            self._changed[f"session|{asked.place}"] = asked.session.row
        return row.tripped

    def _subject(self, asked: Asked, row: ChainRow) -> tuple[Scope, str]:
        if asked.session is not None:
            return Scope.SESSION, asked.session.name
        names = sorted({key.name for name in row.callers if (key := self._keys.get(name)) is not None})
        return Scope.PAIR if len(row.callers) > 1 else Scope.CONVERSATION, ", ".join(names)

    def _trip(
        self,
        row: ChainRow | SubjectRow,
        kind: Kind,
        scope: Scope,
        subject: str,
        reason: str,
        seen: int,
        limit: int,
        now_ms: int,
    ) -> Tripped:
        rest = self.loops.cool_down_ms
        return self._incidents.trip(
            row, kind, scope, subject, reason, seen=seen, limit=limit, at_ms=now_ms, cool_down_ms=rest
        )


def _leads(row: ChainRow, caller: str, turns: int) -> bool:
    """Nobody is refused for a conversation into which a chance quotation drew him."""
    return len(row.callers) == 1 or 4 * row.callers[caller] >= turns

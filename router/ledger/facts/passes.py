"""How many answers were right, of those that somebody judged: sums over the log of outcomes, which stays as it is.

Of what one source said of an attempt the newest counts. An attempt counts once, whoever judged it: with the mean of its
scores by their weights, and as much as the weightiest of them. A verifier that only saw nothing wrong has not judged;
where nobody else did, its answer is taken to be right as often as was expected of it.
"""

from router.ledger.facts.attempts import level
from router.ledger.facts.query import Query, Sums
from router.ledger.rows import Connection
from router.types.attempt import PASSED
from router.types.clock import least_id
from router.types.tables import patterns

TABLE = "passes"
DIMENSIONS = ("target", "task", "difficulty", "app", "template")
MEASURES = ("judged", "weight_e6", "passed_e6", "assumed", "assumed_e6", "expected_e6")
"""Attempts that were judged, their weights, and weights × scores, both in millionths; and the same of those of which
only nothing wrong was seen, with what was expected in the place of a score."""
_SUMS: str = patterns("ledger/data/passes.yaml", passed=str(PASSED), difficulty=level("o.difficulty"))["sums"]
_LAST_ID = "g"
"""Beyond every id, which are hexadecimal."""


def sums(connection: Connection, query: Query) -> Sums:
    """Of requests whose id was made in the window. Raises ValueError for what is not known of a judgement."""
    query.check(DIMENSIONS, MEASURES)
    window = least_id(query.since_ms or 0), _LAST_ID if query.until_ms is None else least_id(query.until_ms)
    facts = (
        ((target or None, task or None, difficulty, app or None, template or None), amounts)
        for target, task, difficulty, app, template, *amounts in connection.execute(_SUMS, window)
    )
    sums: Sums = {}
    query.collect(facts, DIMENSIONS, MEASURES, sums)
    return sums

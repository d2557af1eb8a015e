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

TABLE = "passes"
DIMENSIONS = ("target", "task", "difficulty", "app", "template")
MEASURES = ("judged", "weight_e6", "passed_e6", "assumed", "assumed_e6", "expected_e6")
"""Attempts that were judged, their weights, and weights × scores, both in millionths; and the same of those of which
only nothing wrong was seen, with what was expected in the place of a score."""
MILLION = 1_000_000
_NEWER = (
    "SELECT 1 FROM outcomes AS n WHERE n.request_id = o.request_id AND n.attempt = o.attempt AND n.source = o.source"
    " AND n.revision = o.revision + 1"
)
# Where nothing was expected, noes that stand beside no yeses would make every answer wrong.
_TELLS = f"o.decides = 1 OR (o.score < {PASSED} AND o.expected IS NOT NULL)"
_SUMS = f"""
WITH said AS (
    SELECT o.request_id, o.attempt, o.target, o.task, {level("o.difficulty")} AS difficulty, o.score, o.weight,
        o.app, o.template, o.expected, CASE WHEN {_TELLS} THEN o.weight ELSE 0 END AS told
    FROM outcomes AS o
    WHERE o.score IS NOT NULL AND o.weight > 0 AND (o.decides = 1 OR o.expected IS NOT NULL)
        AND o.request_id >= ? AND o.request_id < ? AND NOT EXISTS ({_NEWER})
), judged AS (
    SELECT target, task, difficulty, app, template, MAX(told) AS told,
        SUM(told * score) / NULLIF(SUM(told), 0) AS score, MAX(weight) AS weight, MAX(expected) AS expected
    FROM said GROUP BY request_id, attempt, target, task, difficulty, app, template
)
SELECT target, task, difficulty, app, template,
    SUM(CASE WHEN told > 0 THEN 1 ELSE 0 END),
    SUM(CASE WHEN told > 0 THEN CAST(ROUND(told * {MILLION}) AS BIGINT) ELSE 0 END),
    SUM(CASE WHEN told > 0 THEN CAST(ROUND(told * score * {MILLION}) AS BIGINT) ELSE 0 END),
    SUM(CASE WHEN told > 0 THEN 0 ELSE 1 END),
    SUM(CASE WHEN told > 0 THEN 0 ELSE CAST(ROUND(weight * {MILLION}) AS BIGINT) END),
    SUM(CASE WHEN told > 0 THEN 0 ELSE CAST(ROUND(weight * expected * {MILLION}) AS BIGINT) END)
FROM judged GROUP BY target, task, difficulty, app, template
"""  # noqa: S608 - constants of this file
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

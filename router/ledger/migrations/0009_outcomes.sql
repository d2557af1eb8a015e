-- How good answers were. The one log that every gateway tails and learns from: rows are added, never changed.
-- A later row of the same source and attempt (the next revision) stands in the place of the earlier one, and says what
-- that one was, so that whoever learned from it can take it back.
CREATE TABLE outcomes (
    -- grows from row to row
    position INTEGER /* counted */ PRIMARY KEY,
    request_id TEXT NOT NULL,
    -- attempts.number
    attempt INTEGER NOT NULL,
    target TEXT NOT NULL,
    -- client | client.NAME | verifier.NAME | judge.TARGET
    source TEXT NOT NULL,
    revision INTEGER NOT NULL,
    -- 0 to 1; NULL: it contradicted itself
    score REAL,
    weight REAL NOT NULL,
    was_score REAL,
    was_weight REAL NOT NULL,
    was_ms BIGINT,
    -- 0: its yes means only that nothing wrong was seen
    decides INTEGER NOT NULL,
    task TEXT NOT NULL,
    difficulty REAL NOT NULL,
    -- base64 of signed bytes, as in decisions.document; empty: nobody looked at the request
    traits TEXT NOT NULL,
    -- the pass rate that was expected of the target
    expected REAL,
    given_ms BIGINT NOT NULL,
    -- the client's own, against telling the same thing twice
    told_key TEXT NOT NULL,
    UNIQUE (request_id, attempt, source, revision)
);

INSERT INTO outcomes (
    request_id, attempt, target, source, revision, score, weight, was_score, was_weight, was_ms, decides, task,
    difficulty, traits, expected, given_ms, told_key
)
SELECT
    f.request_id,
    coalesce((SELECT max(number) FROM attempts AS a WHERE a.request_id = f.request_id AND a.outcome = 'ok'), 0),
    coalesce(r.target, ''),
    f.source,
    row_number() OVER told - 1,
    f.score,
    1,
    lag(f.score) OVER told,
    CASE WHEN row_number() OVER told = 1 THEN 0 ELSE 1 END,
    lag(f.given_ms) OVER told,
    1,
    r.task,
    r.difficulty,
    '',
    NULL,
    f.given_ms,
    ''
FROM feedback AS f JOIN requests AS r ON r.id = f.request_id
WINDOW told AS (PARTITION BY f.request_id, f.source ORDER BY f.given_ms)
ORDER BY f.given_ms;
DROP TABLE feedback;

-- What was learned up to a position of the log, so that a start need not read all of it. `state` is base64.
CREATE TABLE posteriors (
    name TEXT PRIMARY KEY,
    position BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    state TEXT NOT NULL
) WITHOUT ROWID;

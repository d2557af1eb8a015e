-- What clients said, as it was before: a score and its source. What was learned is learned again.
-- loses what verifiers and judges said: SELECT 1 FROM outcomes WHERE source <> 'client' AND source NOT LIKE 'client.%'
-- loses what outcomes say beyond a score: SELECT 1 FROM outcomes WHERE score IS NULL OR weight <> 1 OR decides = 0 OR traits <> '' OR expected IS NOT NULL OR told_key <> ''
CREATE TABLE feedback (
    request_id TEXT NOT NULL,
    given_ms BIGINT NOT NULL,
    score REAL NOT NULL,
    source TEXT NOT NULL
);
CREATE INDEX feedback_request ON feedback (request_id);
INSERT INTO feedback SELECT request_id, given_ms, score, source FROM outcomes
    WHERE score IS NOT NULL AND (source = 'client' OR source LIKE 'client.%') ORDER BY position;
DROP TABLE posteriors;
DROP TABLE outcomes;

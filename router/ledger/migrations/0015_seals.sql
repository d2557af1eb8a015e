-- Digests of rows that are never edited, one a row, each with the digest of the seal before it (router/ledger/past.py):
-- of `audit`, of `adjustments`, and of requests that have not moved yet.
CREATE TABLE seals (
    subject TEXT NOT NULL,
    position BIGINT NOT NULL,
    id TEXT NOT NULL,
    -- of a request: its state when it was sealed
    state TEXT NOT NULL,
    content TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (subject, position)
) WITHOUT ROWID;
CREATE INDEX seals_of ON seals (subject, id);

-- Secrets of keys before the one in `keys.previous_hash`, and until when each is valid.
CREATE TABLE previous_secrets (
    hash TEXT PRIMARY KEY,
    key_id TEXT NOT NULL,
    until_ms BIGINT NOT NULL
) WITHOUT ROWID;

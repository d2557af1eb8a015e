-- Limits of keys, limits that stand in place of the policy's, corrections of charges, and who changed what.

-- nano-USD in a window
ALTER TABLE keys ADD COLUMN limit_nano BIGINT;
ALTER TABLE keys ADD COLUMN limit_window TEXT NOT NULL DEFAULT '';
-- requests and tokens a minute, requests in progress
ALTER TABLE keys ADD COLUMN rpm BIGINT;
ALTER TABLE keys ADD COLUMN tpm BIGINT;
ALTER TABLE keys ADD COLUMN parallel BIGINT;
ALTER TABLE keys ADD COLUMN expires_ms BIGINT;
ALTER TABLE keys ADD COLUMN used_ms BIGINT;
-- The secret before the last rotation, and until when it is valid.
ALTER TABLE keys ADD COLUMN previous_hash TEXT;
ALTER TABLE keys ADD COLUMN previous_until_ms BIGINT;

-- `id`: of a budget of the policy, or of one of its accounts. `size`: nano-USD or thinking tokens.
CREATE TABLE budget_limits (
    id TEXT PRIMARY KEY,
    size BIGINT NOT NULL,
    set_ms BIGINT NOT NULL,
    set_by TEXT NOT NULL,
    expires_ms BIGINT
) WITHOUT ROWID;

-- `actor`: the name of a key, or `command line`. `document`: what was changed, as JSON.
CREATE TABLE audit (
    id TEXT PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    document TEXT NOT NULL
) WITHOUT ROWID;

-- Corrections of charges. `id`: of the row that books it, which stands among the requests with the endpoint
-- 'adjustment'; `request_id`: of the request whose charge it corrects, empty where it corrects those of a day and model.
CREATE TABLE adjustments (
    id TEXT PRIMARY KEY,
    request_id TEXT NOT NULL,
    given_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    source TEXT NOT NULL,
    cause TEXT NOT NULL,
    reason TEXT NOT NULL,
    -- nano-USD that it adds; negative: that it gives back
    cost BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX adjustments_request ON adjustments (request_id);

-- What statements of providers taught: by how much what was estimated for attempts at a target was billed in truth.
CREATE TABLE billing (
    target TEXT PRIMARY KEY,
    factor REAL NOT NULL,
    at_ms BIGINT NOT NULL,
    source TEXT NOT NULL
) WITHOUT ROWID;

-- Batches of past_requests, by position: a digest over their rows and the digest before (router/ledger/chain.py).
-- `complete`: 0 once some of them have expired.
CREATE TABLE chain (
    last BIGINT PRIMARY KEY,
    first BIGINT NOT NULL,
    digest TEXT NOT NULL,
    complete INTEGER NOT NULL
) WITHOUT ROWID;

-- The oldest version of lowpass that can use this ledger. A later migration that only adds (tables, columns with a
-- default or without NOT NULL, indexes) leaves it; one that takes away or changes sets it to its own number.
CREATE TABLE compatible (version BIGINT NOT NULL);
INSERT INTO compatible VALUES (14);

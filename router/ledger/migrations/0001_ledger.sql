-- Money is integer nano-USD, time is Unix ms. NULL is unknown, never 0.
-- Ids are UUIDv7: rows are appended in the order of time, and a span of time is a span of ids.

-- One row a request, and the reservation from birth: held → settled | released | recovered.
CREATE TABLE requests (
    id TEXT PRIMARY KEY,
    started_ms BIGINT NOT NULL,
    state TEXT NOT NULL,
    held BIGINT NOT NULL,
    lease_until_ms BIGINT NOT NULL,
    -- the process that renews the lease while it lives
    owner TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    requested TEXT NOT NULL,
    route TEXT NOT NULL,
    stream INTEGER NOT NULL,
    key_id TEXT NOT NULL,
    session TEXT NOT NULL,
    tags TEXT NOT NULL,
    data_class TEXT NOT NULL,
    task TEXT NOT NULL,
    difficulty REAL NOT NULL,
    -- known once settled
    target TEXT,
    model TEXT,
    status INTEGER,
    error TEXT,
    cost BIGINT,
    input_tokens BIGINT,
    output_tokens BIGINT,
    reasoning_tokens BIGINT,
    total_ms BIGINT,
    first_ms BIGINT
) WITHOUT ROWID;
CREATE INDEX requests_held ON requests (lease_until_ms) WHERE state = 'held';

-- One row an attempt, priced at the target that served it.
CREATE TABLE attempts (
    request_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    target TEXT NOT NULL,
    model TEXT NOT NULL,
    provider TEXT NOT NULL,
    model_served TEXT NOT NULL,
    outcome TEXT NOT NULL,
    upstream_status INTEGER,
    finish_reason TEXT NOT NULL,
    -- 0: nothing for the client, as when thinking used up the cap; a failed pass
    answered INTEGER NOT NULL,
    thinking TEXT NOT NULL,
    started_ms BIGINT NOT NULL,
    total_ms BIGINT NOT NULL,
    first_ms BIGINT,
    input_uncached BIGINT,
    cache_read BIGINT,
    cache_write BIGINT,
    cache_write_1h BIGINT,
    input_audio BIGINT,
    output_visible BIGINT,
    output_reasoning BIGINT,
    output_audio BIGINT,
    usage_source TEXT,
    reasoning_source TEXT,
    violations TEXT NOT NULL,
    cost BIGINT NOT NULL,
    cost_source TEXT NOT NULL,
    price_version TEXT NOT NULL,
    PRIMARY KEY (request_id, number)
) WITHOUT ROWID;

-- One row a decision; `document` is the JSON of router.decide.explain.Explained: no text, no secret.
CREATE TABLE decisions (
    id TEXT PRIMARY KEY,
    decided_ms BIGINT NOT NULL,
    policy TEXT NOT NULL,
    document TEXT NOT NULL
) WITHOUT ROWID;

-- What each budget has spent and held in each window; changed in the same transaction as the rows it sums.
CREATE TABLE budget_windows (
    budget TEXT NOT NULL,
    window_start_ms BIGINT NOT NULL,
    spent BIGINT NOT NULL,
    held BIGINT NOT NULL,
    PRIMARY KEY (budget, window_start_ms)
) WITHOUT ROWID;

-- The part of a request's hold that each budget keeps.
CREATE TABLE holds (
    request_id TEXT NOT NULL,
    budget TEXT NOT NULL,
    window_start_ms BIGINT NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (request_id, budget)
) WITHOUT ROWID;

-- Keys are stored as SHA-256 of the whole key; the secret is shown once.
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    revoked_ms BIGINT,
    routes TEXT NOT NULL,
    targets TEXT NOT NULL,
    tags TEXT NOT NULL,
    scopes TEXT NOT NULL,
    budget TEXT NOT NULL
);

-- Outcomes that clients report; what the estimates learn from.
CREATE TABLE feedback (
    request_id TEXT NOT NULL,
    given_ms BIGINT NOT NULL,
    score REAL NOT NULL,
    source TEXT NOT NULL
);
CREATE INDEX feedback_request ON feedback (request_id);

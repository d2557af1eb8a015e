-- What local engines did, and what a token of them costs by that.

-- Rows are added, never changed: charges name them.
CREATE TABLE engine_prices (
    -- "measured ENGINE TIME", as in attempts.price_version
    version TEXT PRIMARY KEY,
    engine TEXT NOT NULL,
    -- the name of the machine whose gateway measured it
    gateway TEXT NOT NULL,
    since_ms BIGINT NOT NULL,
    -- nano-USD per million tokens
    input BIGINT NOT NULL,
    cached BIGINT NOT NULL,
    output BIGINT NOT NULL,
    -- marginal | full: which hours of the machine they pay for
    counted TEXT NOT NULL,
    -- nano-USD for an hour of all replicas
    hourly BIGINT NOT NULL,
    -- what they come from; what is older counts for less. All hours, and those in which it worked …
    wall_ms BIGINT NOT NULL,
    busy_ms BIGINT NOT NULL,
    -- … and the tokens of the last minutes of work
    uncached_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX engine_prices_since ON engine_prices (since_ms);
CREATE INDEX engine_prices_engine ON engine_prices (engine, gateway, since_ms);

-- Sums of all replicas; they only grow.
CREATE TABLE engine_hours (
    engine TEXT NOT NULL,
    -- Unix hours
    hour BIGINT NOT NULL,
    gateway TEXT NOT NULL,
    -- 1: somebody else runs it, so that every gateway that watches it sees all of it
    external BIGINT NOT NULL,
    -- it was up; at least one request was running; requests running, each by itself
    wall_ms BIGINT NOT NULL,
    busy_ms BIGINT NOT NULL,
    request_ms BIGINT NOT NULL,
    uncached_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    -- as the engine sums them over its requests
    prefill_ms BIGINT NOT NULL,
    decode_ms BIGINT NOT NULL,
    finished BIGINT NOT NULL,
    rejected BIGINT NOT NULL,
    preempted BIGINT NOT NULL,
    restarts BIGINT NOT NULL,
    -- nano-USD for wall_ms
    cost BIGINT NOT NULL,
    -- millijoule that the site drew for it: by the GPUs' own meters, and else by the watts that its spec declares;
    -- NULL: nobody knows
    energy_mj BIGINT,
    declared_mj BIGINT,
    PRIMARY KEY (engine, hour, gateway)
) WITHOUT ROWID;

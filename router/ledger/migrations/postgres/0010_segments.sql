-- The tables of ../sqlite/0010_segments.sql. Sums are kept where the budgets are, so there is no trigger.

ALTER TABLE attempts ADD COLUMN thinking_cost BIGINT;
ALTER TABLE attempts ADD COLUMN cache_saved BIGINT;
ALTER TABLE requests ADD COLUMN overhead_us BIGINT;

CREATE TABLE segments (
    number BIGINT PRIMARY KEY,
    previous BIGINT NOT NULL UNIQUE,
    first_id TEXT NOT NULL,
    last_id TEXT NOT NULL,
    first_ms BIGINT NOT NULL,
    last_ms BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    cleared BIGINT NOT NULL,
    expired_ms BIGINT
);

CREATE TABLE segment_parts (
    segment BIGINT NOT NULL,
    part TEXT NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (segment, part)
);

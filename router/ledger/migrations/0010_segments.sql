-- Rows of the past move into segments, packed column by column, and their sums by hour stay when they expire.

-- nano-USD that an attempt's reasoning cost, and that its cached input cost less than it would have uncached; NULL:
-- nobody worked it out
ALTER TABLE attempts ADD COLUMN thinking_cost BIGINT;
ALTER TABLE attempts ADD COLUMN cache_saved BIGINT;
-- microseconds in which we were busy and no target was
ALTER TABLE requests ADD COLUMN overhead_us BIGINT;

-- One row a segment: requests whose ids follow each other. Whatever is not beyond the greatest `last_id` is in a segment,
-- or came late and will be in the next one.
CREATE TABLE segments (
    -- Unix ms at which it was packed; parts without a segment were left behind by somebody who did not finish
    number BIGINT PRIMARY KEY,
    -- the number of the segment packed before it, 0 for the first: of two packed at once only one can follow it
    previous BIGINT NOT NULL UNIQUE,
    first_id TEXT NOT NULL,
    last_id TEXT NOT NULL,
    -- requests.started_ms, of the first and of the last to begin
    first_ms BIGINT NOT NULL,
    last_ms BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    -- 1: its rows are gone from the tables that they were in
    cleared BIGINT NOT NULL,
    -- NULL until its rows expired; its sums stay
    expired_ms BIGINT
) WITHOUT ROWID;

-- `part` names what it holds: rows of requests, columns of facts, sums by hour (router.ledger.packed).
CREATE TABLE segment_parts (
    segment BIGINT NOT NULL,
    part TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (segment, part)
);

-- SQLite only, from here
-- What leaves the bookings leaves the window: whoever moves rows books their sum first.
CREATE TRIGGER unbooked AFTER DELETE ON bookings
BEGIN
    UPDATE budget_windows SET
        spent = spent - coalesce(old.charged, 0),
        held = held - CASE WHEN old.charged IS NULL THEN old.held ELSE 0 END
    WHERE budget = old.account AND window_start_ms = old.window_start_ms;
END;
-- to here

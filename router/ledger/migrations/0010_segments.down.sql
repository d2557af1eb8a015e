-- What is packed was unpacked before (router/ledger/unpack.py).
-- loses what reasoning cost and caches saved: SELECT 1 FROM attempts WHERE thinking_cost IS NOT NULL OR cache_saved IS NOT NULL
-- loses how long requests kept lowpass busy: SELECT 1 FROM requests WHERE overhead_us IS NOT NULL
-- loses sums of requests that expired: SELECT 1 FROM segments WHERE expired_ms IS NOT NULL
-- SQLite only, from here
DROP TRIGGER unbooked;
-- to here
DROP TABLE segment_parts;
DROP TABLE segments;
ALTER TABLE requests DROP COLUMN overhead_us;
ALTER TABLE attempts DROP COLUMN cache_saved;
ALTER TABLE attempts DROP COLUMN thinking_cost;

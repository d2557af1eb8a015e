-- Everything that the price of an attempt depends on, so that it can be computed again.
ALTER TABLE attempts ADD COLUMN cache_read_explicit BIGINT;
ALTER TABLE attempts ADD COLUMN cache_read_audio BIGINT;
ALTER TABLE attempts ADD COLUMN cache_write_12h BIGINT;
ALTER TABLE attempts ADD COLUMN input_image BIGINT;
ALTER TABLE attempts ADD COLUMN input_video BIGINT;
ALTER TABLE attempts ADD COLUMN output_image BIGINT;
ALTER TABLE attempts ADD COLUMN output_video BIGINT;
-- what is not counted in tokens: JSON, e.g. {"web_search":2}; empty: none
ALTER TABLE attempts ADD COLUMN units TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN service_tier TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN region TEXT NOT NULL DEFAULT '';
-- what our price makes of the usage; `cost` differs from it where the provider states another amount
ALTER TABLE attempts ADD COLUMN own_cost BIGINT;
-- 1: the report contradicted itself or named something without a price, and was settled at the larger reading
ALTER TABLE attempts ADD COLUMN flagged INTEGER NOT NULL DEFAULT 0;

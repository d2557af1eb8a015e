-- loses what attempts used beyond plain tokens: SELECT 1 FROM attempts WHERE cache_read_explicit IS NOT NULL OR cache_read_audio IS NOT NULL OR cache_write_12h IS NOT NULL OR input_image IS NOT NULL OR input_video IS NOT NULL OR output_image IS NOT NULL OR output_video IS NOT NULL OR units <> '' OR service_tier <> '' OR region <> ''
-- loses what our prices made of usage: SELECT 1 FROM attempts WHERE own_cost IS NOT NULL OR flagged <> 0
ALTER TABLE attempts DROP COLUMN flagged;
ALTER TABLE attempts DROP COLUMN own_cost;
ALTER TABLE attempts DROP COLUMN region;
ALTER TABLE attempts DROP COLUMN service_tier;
ALTER TABLE attempts DROP COLUMN units;
ALTER TABLE attempts DROP COLUMN output_video;
ALTER TABLE attempts DROP COLUMN output_image;
ALTER TABLE attempts DROP COLUMN input_video;
ALTER TABLE attempts DROP COLUMN input_image;
ALTER TABLE attempts DROP COLUMN cache_write_12h;
ALTER TABLE attempts DROP COLUMN cache_read_audio;
ALTER TABLE attempts DROP COLUMN cache_read_explicit;

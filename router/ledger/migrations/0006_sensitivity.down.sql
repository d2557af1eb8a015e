-- loses what sessions have seen: SELECT 1 FROM taints
-- loses the policies that were in force: SELECT 1 FROM policies
-- loses the least class of keys: SELECT 1 FROM keys WHERE min_class <> ''
-- loses which classes were sent where: SELECT 1 FROM attempts WHERE classes <> '' OR redacted <> 0 OR region_source <> ''
-- loses which classes were seen under which policy: SELECT 1 FROM requests WHERE classes <> '' OR policy <> ''
DROP TABLE taints;
DROP TABLE policies;
ALTER TABLE attempts DROP COLUMN region_source;
ALTER TABLE attempts DROP COLUMN redacted;
ALTER TABLE attempts DROP COLUMN classes;
ALTER TABLE requests DROP COLUMN policy;
ALTER TABLE requests DROP COLUMN classes;
ALTER TABLE keys DROP COLUMN min_class;

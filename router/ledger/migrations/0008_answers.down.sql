-- loses which answers of a request were given, and how they were judged: SELECT 1 FROM attempts WHERE role <> '' OR passed_over <> 0 OR verdict IS NOT NULL OR verdicts <> ''
ALTER TABLE attempts DROP COLUMN verdicts;
ALTER TABLE attempts DROP COLUMN verdict;
ALTER TABLE attempts DROP COLUMN passed_over;
ALTER TABLE attempts DROP COLUMN role;

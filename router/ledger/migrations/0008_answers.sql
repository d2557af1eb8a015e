-- Requests that ask several targets: which answers were given, and which were not, and why.

-- why it was made: as a level of a cascade, as a sample of a vote, as a hedge; empty: to answer
ALTER TABLE attempts ADD COLUMN role TEXT NOT NULL DEFAULT '';
-- 1: it was answered, but the client was not given this answer
ALTER TABLE attempts ADD COLUMN passed_over INTEGER NOT NULL DEFAULT 0;
-- the least score of its answer, 0 to 1, where that was looked at before it was given and anything could be said
ALTER TABLE attempts ADD COLUMN verdict REAL;
-- JSON: verifier -> score or null; empty: nobody looked
ALTER TABLE attempts ADD COLUMN verdicts TEXT NOT NULL DEFAULT '';

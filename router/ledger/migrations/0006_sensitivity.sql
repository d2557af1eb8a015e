-- What a request held, what was sent of it, where to, and under which policy: enough to check each row again.

-- a class that binds all that it sends; empty: the policy's default
ALTER TABLE keys ADD COLUMN min_class TEXT NOT NULL DEFAULT '';
-- every class that was seen, in the order of the alphabet, joined by commas; data_class is the highest of them
ALTER TABLE requests ADD COLUMN classes TEXT NOT NULL DEFAULT '';
-- policies.hash
ALTER TABLE requests ADD COLUMN policy TEXT NOT NULL DEFAULT '';
-- those of what was sent; empty: not known
ALTER TABLE attempts ADD COLUMN classes TEXT NOT NULL DEFAULT '';
-- 1: it had placeholders in the place of what was found
ALTER TABLE attempts ADD COLUMN redacted INTEGER NOT NULL DEFAULT 0;
-- who says that it was served in `region`: verified (the provider), mismatch (the provider, and it is another one than
-- the target's), asserted (the policy); empty: nobody
ALTER TABLE attempts ADD COLUMN region_source TEXT NOT NULL DEFAULT '';

-- What each policy that was in force demands, and of whom; `document` is the JSON of router.decide.in_force.
CREATE TABLE policies (
    hash TEXT PRIMARY KEY,
    adopted_ms BIGINT NOT NULL,
    document TEXT NOT NULL
) WITHOUT ROWID;

-- What sessions have seen, for good: one row a session and class above the default. `session` is CALLER/NAME.
-- firm 1: declared, or stood for what can't be read; 0: found, so redaction can take it away
CREATE TABLE taints (
    session TEXT NOT NULL,
    data_class TEXT NOT NULL,
    firm INTEGER NOT NULL,
    PRIMARY KEY (session, data_class, firm)
) WITHOUT ROWID;

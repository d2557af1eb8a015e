-- What the loop breaker remembers through a restart, and what it did. Times are Unix ms; nothing here holds a text.

-- One row a session, a key or a conversation with a streak; `document` is the JSON of router.budget.streak.
CREATE TABLE loops (
    id TEXT PRIMARY KEY,
    changed_ms BIGINT NOT NULL,
    document TEXT NOT NULL
) WITHOUT ROWID;

-- One row a trip; `until_ms` is NULL where it does not end.
CREATE TABLE incidents (
    id TEXT PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    kind TEXT NOT NULL,
    scope TEXT NOT NULL,
    subject TEXT NOT NULL,
    reason TEXT NOT NULL,
    until_ms BIGINT
) WITHOUT ROWID;

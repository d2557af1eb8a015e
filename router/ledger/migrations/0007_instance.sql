-- One row: what makes placeholders of redacted values that nobody else can tie to them.
CREATE TABLE instance (
    id BIGINT PRIMARY KEY,
    secret TEXT NOT NULL
) WITHOUT ROWID;

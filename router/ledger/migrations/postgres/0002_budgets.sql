-- The columns of ../sqlite/0002_budgets.sql. Sums are kept where the budgets are, so there are no triggers; bookings are
-- their audit.

ALTER TABLE requests ADD COLUMN held_thinking BIGINT NOT NULL DEFAULT 0;
-- charged thinking tokens, as `cost` is the charged money
ALTER TABLE requests ADD COLUMN thinking BIGINT;
ALTER TABLE requests ADD COLUMN overrun BIGINT NOT NULL DEFAULT 0;
-- what was lowered so that the request fitted its budgets
ALTER TABLE requests ADD COLUMN lowered TEXT NOT NULL DEFAULT '';
ALTER TABLE keys ADD COLUMN team TEXT NOT NULL DEFAULT '';
ALTER TABLE keys ADD COLUMN organisation TEXT NOT NULL DEFAULT '';

CREATE TABLE bookings (
    request_id TEXT NOT NULL,
    account TEXT NOT NULL,
    window_start_ms BIGINT NOT NULL,
    held BIGINT NOT NULL,
    charged BIGINT,
    state TEXT NOT NULL,
    PRIMARY KEY (request_id, account)
);

CREATE TABLE children (
    id TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    parent_window_ms BIGINT NOT NULL,
    replaces TEXT NOT NULL,
    unit TEXT NOT NULL,
    size BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    expires_at_ms BIGINT,
    key_id TEXT NOT NULL,
    team TEXT NOT NULL,
    closed_ms BIGINT
);

-- `bookings` took its place.
DROP TABLE holds;

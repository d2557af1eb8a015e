-- Money and thinking tokens, held and charged: what a request has booked in each account, and budgets that are split off.

ALTER TABLE requests ADD COLUMN held_thinking BIGINT NOT NULL DEFAULT 0;
-- charged thinking tokens, as `cost` is the charged money
ALTER TABLE requests ADD COLUMN thinking BIGINT;
ALTER TABLE requests ADD COLUMN overrun INTEGER NOT NULL DEFAULT 0;
-- what was lowered so that the request fitted its budgets
ALTER TABLE requests ADD COLUMN lowered TEXT NOT NULL DEFAULT '';
ALTER TABLE keys ADD COLUMN team TEXT NOT NULL DEFAULT '';
ALTER TABLE keys ADD COLUMN organisation TEXT NOT NULL DEFAULT '';

-- One row a request and account, kept for good; or a child's limit in its parent's account, under the child's id.
-- held → settled; held → recovered → settled, where the process died and came back with the true charge;
-- lost: charged without a hold that we know of, and not yet reported.
CREATE TABLE bookings (
    request_id TEXT NOT NULL,
    account TEXT NOT NULL,
    window_start_ms BIGINT NOT NULL,
    held BIGINT NOT NULL,
    -- NULL while it is held
    charged BIGINT,
    state TEXT NOT NULL,
    PRIMARY KEY (request_id, account)
) WITHOUT ROWID;
-- SQLite only, from here
CREATE INDEX bookings_lost ON bookings (state) WHERE state = 'lost';
-- to here

-- Budgets split off; times are Unix ms, `replaces` is a JSON array of account ids.
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
) WITHOUT ROWID;
-- SQLite only, from here
CREATE INDEX children_parent ON children (parent);
CREATE INDEX children_open ON children (expires_at_ms) WHERE closed_ms IS NULL;

-- What was booked before has its rows too; the windows hold these sums already, so the triggers come after.
INSERT INTO bookings SELECT request_id, budget, window_start_ms, amount, NULL, 'held' FROM holds;
INSERT INTO bookings
    SELECT 'opening-' || window_start_ms, budget, window_start_ms, 0, spent, 'settled' FROM budget_windows WHERE spent != 0;
-- to here
DROP TABLE holds;

-- Sums are kept where the budgets are: in PostgreSQL bookings are only their audit.
-- SQLite only, from here
-- A rolling window counts every open hold, and has many buckets.
CREATE INDEX budget_windows_held ON budget_windows (budget) WHERE held != 0;

-- budget_windows is the sum of bookings, by construction: nothing else writes to it.
CREATE TRIGGER booked AFTER INSERT ON bookings
BEGIN
    INSERT INTO budget_windows VALUES (
        new.account,
        new.window_start_ms,
        coalesce(new.charged, 0),
        CASE WHEN new.charged IS NULL THEN new.held ELSE 0 END
    )
    ON CONFLICT (budget, window_start_ms) DO UPDATE SET spent = spent + excluded.spent, held = held + excluded.held;
END;

CREATE TRIGGER rebooked AFTER UPDATE OF held, charged ON bookings
BEGIN
    UPDATE budget_windows SET
        spent = spent + coalesce(new.charged, 0) - coalesce(old.charged, 0),
        held = held + CASE WHEN new.charged IS NULL THEN new.held ELSE 0 END
            - CASE WHEN old.charged IS NULL THEN old.held ELSE 0 END
    WHERE budget = new.account AND window_start_ms = new.window_start_ms;
END;

-- A child's row in its parent follows the child: its size while it is open, or more if it overran that; once it is
-- closed, what it spent and still holds; once it holds nothing, a charge. Parents of parents follow in turn
-- (recursive_triggers).
CREATE TRIGGER child_booked AFTER UPDATE ON budget_windows
WHEN EXISTS (
    SELECT 1 FROM children WHERE id = new.budget
    AND (closed_ms IS NOT NULL OR new.spent + new.held > size OR old.spent + old.held > size)
)
BEGIN
    UPDATE bookings SET (held, charged, state) = (
        SELECT
            CASE WHEN closed_ms IS NULL THEN max(size, new.spent + new.held)
                WHEN new.held > 0 THEN new.spent + new.held ELSE bookings.held END,
            CASE WHEN closed_ms IS NOT NULL AND new.held = 0 THEN new.spent END,
            CASE WHEN closed_ms IS NOT NULL AND new.held = 0 THEN 'settled' ELSE 'held' END
        FROM children WHERE id = new.budget
    )
    WHERE request_id = new.budget;
END;
-- to here

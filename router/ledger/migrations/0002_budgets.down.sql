-- Holds as they were; of what was charged the sums of each window stay.
-- loses what each request was charged in which budget: SELECT 1 FROM bookings WHERE charged IS NOT NULL AND request_id NOT LIKE 'opening-%'
-- loses budgets that were split off: SELECT 1 FROM children
-- loses thinking tokens and what was lowered: SELECT 1 FROM requests WHERE held_thinking <> 0 OR thinking <> 0 OR overrun <> 0 OR lowered <> ''
-- loses teams and organisations of keys: SELECT 1 FROM keys WHERE team <> '' OR organisation <> ''
CREATE TABLE holds (
    request_id TEXT NOT NULL,
    budget TEXT NOT NULL,
    window_start_ms BIGINT NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (request_id, budget)
) WITHOUT ROWID;
INSERT INTO holds SELECT request_id, account, window_start_ms, held FROM bookings WHERE charged IS NULL;
-- SQLite only, from here
DROP TRIGGER child_booked;
DROP TRIGGER rebooked;
DROP TRIGGER booked;
DROP INDEX budget_windows_held;
-- to here
DROP TABLE children;
DROP TABLE bookings;
ALTER TABLE keys DROP COLUMN organisation;
ALTER TABLE keys DROP COLUMN team;
ALTER TABLE requests DROP COLUMN lowered;
ALTER TABLE requests DROP COLUMN overrun;
ALTER TABLE requests DROP COLUMN thinking;
ALTER TABLE requests DROP COLUMN held_thinking;

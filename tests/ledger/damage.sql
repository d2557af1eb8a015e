-- Much of it at once, as far as one does not hide the other.
UPDATE live_requests SET cost = cost + 1 WHERE id = '$A'; -- requests $A: it cost
UPDATE live_requests SET reasoning_tokens = -5 WHERE id = '$A'; -- requests $A: it has -5 reasoning
UPDATE live_requests SET cost = 6 WHERE id = '$C'; -- requests $C: it was recovered at 6
UPDATE live_attempts SET price_version = '' WHERE request_id = '$B'; -- attempts $B attempt 1: it does not name
UPDATE live_decisions SET document = '{' WHERE id = '$A'; -- decisions $A: its document can't be read
UPDATE bookings SET charged = 3 WHERE request_id = '$C'; -- bookings $C in day: it was recovered at 3, and held
UPDATE outcomes SET request_id = 'x' WHERE request_id = '$B'; -- about x: there is no such request
UPDATE outcomes SET target = 'x' WHERE request_id = '$OLD'; -- about $OLD: its request has no attempt 1 at x
UPDATE live_requests SET lease_until_ms = 5 WHERE id = '$H'; -- requests $H: it is held, and its lease ended at 5
UPDATE past_attempts SET cost = cost + 1 WHERE request_id = '$OLD'; -- requests $OLD: it cost
UPDATE hourly_attempts SET requests = requests + 1; -- it sums requests of
UPDATE hourly_offers SET expected = expected - 1; -- it sums expected of
UPDATE bookings SET charged = charged + 2 WHERE request_id = '$A'; -- bookings $A in company: it is charged
UPDATE past_bookings SET charged = charged - 1 WHERE request_id = '$P'; -- bookings $P in company: it is charged
INSERT INTO bookings SELECT id, 'company', 5, 0, cost, 'settled' FROM past_requests WHERE id = '$Q'; -- bookings $Q in company: it is booked twice
UPDATE progress SET position = 17000 WHERE name LIKE 'attempts.tags%'; -- attempts.tags: its sums go up to 17000

-- Each alone; of rows of the past, whatever else was made to agree with it, their chain tells.
UPDATE live_attempts SET cost = cost + 1 WHERE request_id = '$A'; -- requests $A: it cost
UPDATE live_attempts SET cost = -1 WHERE request_id = '$A'; -- attempts $A attempt 1: it cost -1
UPDATE live_requests SET input_tokens = 1 WHERE id = '$A'; -- requests $A: it has 1 input_tokens
UPDATE live_attempts SET output_visible = 9999999 WHERE request_id = '$A'; -- requests $A: it has
UPDATE live_requests SET thinking = 1000000 WHERE id = '$A'; -- requests $A: it was charged 1000000
UPDATE live_attempts SET number = 2 WHERE request_id = '$A'; -- requests $A: its attempts are numbered 2
DELETE FROM live_attempts WHERE request_id = '$A'; -- requests $A: its attempts are numbered none
UPDATE live_requests SET state = 'lost' WHERE id = '$A'; -- requests $A: there is no state 'lost'
UPDATE live_requests SET state = 'released' WHERE id = '$A'; -- requests $A: it was released, and cost
UPDATE live_requests SET cost = 1 WHERE id = '$H'; -- requests $H: it is held, and cost 1
DELETE FROM live_requests WHERE id = '$A'; -- attempts $A: there is no such request
UPDATE live_decisions SET document = '{"id":"x"}' WHERE id = '$A'; -- decisions $A: its document is that of x
UPDATE bookings SET charged = 1000000000000000 WHERE request_id = '$A'; -- bookings $A in company: it is charged
UPDATE bookings SET charged = 3 WHERE request_id = '$H'; -- bookings $H in day: it is charged 3
UPDATE outcomes SET target = 'x' WHERE request_id = '$B'; -- about $B: its request has no attempt 1 at x
UPDATE outcomes SET was_score = 0.5 WHERE request_id = '$B' AND revision = 1; -- about $B: it does not follow on
DELETE FROM past_requests WHERE id = '$OLD'; -- , and its rows to
DELETE FROM past_attempts WHERE request_id = '$OLD'; -- requests $OLD: its attempts are numbered none
UPDATE past_decisions SET document = X'00' WHERE id = '$OLD'; -- decisions $OLD: its document can't be read
UPDATE past_decisions SET dictionary = 99 WHERE id = '$OLD'; -- decisions $OLD: its document can't be read
UPDATE past_requests SET started_ms = started_ms + 7200000 WHERE id = '$OLD'; -- , and its rows to
UPDATE names SET name = 'x' WHERE name = 'gpu'; -- , and its rows to
UPDATE sum_groups SET labels = '["x"]' WHERE labels = '["app-1"]'; -- it sums
UPDATE live_requests SET cost = 9223372036854775807 WHERE id = '$B'; -- requests $B: it cost 9223372036854775807
UPDATE live_attempts SET cost = -9223372036854775807 WHERE request_id = '$B'; -- attempts $B attempt 1: it cost -92
DELETE FROM past_requests WHERE id = '$OLD'; -- past_requests positions
UPDATE past_requests SET key_id = (SELECT MAX(id) FROM names) WHERE id = '$OLD'; -- past_requests positions
UPDATE past_requests SET session = 'another' WHERE id = '$OLD'; -- past_requests positions
UPDATE past_requests SET key_id = 'mallory' WHERE id = '$OLD'; -- past_requests positions
UPDATE past_attempts SET total_ms = total_ms + 1 WHERE request_id = '$OLD'; -- past_requests positions
DELETE FROM past_bookings WHERE request_id = '$OLD'; -- past_requests positions
UPDATE names SET name = 'mallory' WHERE id = (SELECT key_id FROM past_requests WHERE id = '$OLD'); -- past_requests positions
DELETE FROM chain WHERE last = (SELECT MIN(last) FROM chain WHERE last > (SELECT MIN(last) FROM chain)); -- past_requests positions
DELETE FROM chain WHERE last = (SELECT MAX(last) FROM chain); -- past_requests positions
UPDATE chain SET digest = 'x' WHERE last = (SELECT MIN(last) FROM chain); -- past_requests positions

-- Of budgets that are kept in the ledger itself.
UPDATE budget_windows SET spent = spent + 1 WHERE budget = 'company'; -- budget_windows company from
UPDATE budget_windows SET held = held - 1 WHERE budget = 'day'; -- budget_windows day from 5: it says
INSERT INTO bookings VALUES ('x', 'day', 5, 0, 1, 'settled'); -- bookings x in day: there is no such request
DELETE FROM bookings WHERE request_id = 'c1'; -- children c1: nothing is booked for it in day
UPDATE bookings SET charged = charged + 1 WHERE request_id LIKE 'packed-%'; -- moved requests were charged
DELETE FROM past_bookings WHERE request_id = '$OLD'; -- moved requests were charged

-- Rows that have not moved, the audit, limits and keys; $X and $K are ids.
UPDATE live_requests SET key_id = 'mallory' WHERE id = '$B'; -- requests $B: it is not what was written
DELETE FROM live_requests WHERE id = '$A'; -- requests $A: it is gone
DELETE FROM live_attempts WHERE request_id = '$A'; -- requests $A: it is gone
DELETE FROM bookings WHERE request_id = '$A'; -- requests $A: it is gone
DELETE FROM live_requests WHERE id = '$C'; -- requests $C: it is gone
DELETE FROM bookings WHERE request_id = '$C'; -- requests $C: it is gone
UPDATE adjustments SET reason = 'because'; -- adjustments $X: it is not what was written
DELETE FROM audit WHERE subject = 'b0'; -- audit
UPDATE budget_limits SET size = 6 WHERE id = 'b1'; -- budget_limits b1: its limit is 6, and by the audit 5
DELETE FROM budget_limits WHERE id = 'b2'; -- budget_limits b2: its limit is not there, and by the audit 5
UPDATE keys SET revoked_ms = NULL; -- keys $K: it is in force, and was revoked by the audit
DELETE FROM seals WHERE subject = 'audit' AND position = 2; -- its seal, or the one before, is not what was written

-- A request that is gone everywhere: rows, bookings and sums agree with each other, and not with the chain.
DELETE FROM past_requests WHERE id = '$GONE'
DELETE FROM past_attempts WHERE request_id = '$GONE'
DELETE FROM past_decisions WHERE id = '$GONE'
UPDATE bookings SET charged = charged - (SELECT p.charged FROM past_bookings AS p JOIN names AS n ON n.id = p.account WHERE p.request_id = '$GONE' AND n.name = bookings.account) WHERE EXISTS (SELECT 1 FROM past_bookings AS p JOIN names AS n ON n.id = p.account WHERE p.request_id = '$GONE' AND n.name = bookings.account AND bookings.request_id = 'packed-' || p.window_start_ms)
DELETE FROM past_bookings WHERE request_id = '$GONE'
DELETE FROM hourly_attempts
DELETE FROM hourly_offers
DELETE FROM progress WHERE name NOT IN ('moved', 'expired', 'swept')

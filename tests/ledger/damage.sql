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
UPDATE progress SET position = 17000 WHERE name LIKE 'attempts.tags%'; -- attempts.tags: its sums go up to 17000

-- Each alone.
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

-- Of budgets that are kept in the ledger itself.
UPDATE budget_windows SET spent = spent + 1 WHERE budget = 'company'; -- budget_windows company from
UPDATE budget_windows SET held = held - 1 WHERE budget = 'day'; -- budget_windows day from 5: it says
INSERT INTO bookings VALUES ('x', 'day', 5, 0, 1, 'settled'); -- bookings x in day: there is no such request
DELETE FROM bookings WHERE request_id = 'c1'; -- children c1: nothing is booked for it in day
UPDATE bookings SET charged = charged + 1 WHERE request_id LIKE 'packed-%'; -- moved requests were charged
DELETE FROM past_bookings WHERE request_id = '$OLD'; -- moved requests were charged

-- Of rows of the past, whatever else was made to agree with it: their chain tells.
DELETE FROM past_requests WHERE id = '$P'
UPDATE past_requests SET key_id = (SELECT MAX(id) FROM names) WHERE id = '$P'
UPDATE past_requests SET session = 'another' WHERE id = '$P'
UPDATE past_attempts SET total_ms = total_ms + 1 WHERE request_id = '$P'
DELETE FROM past_bookings WHERE request_id = '$P'
UPDATE names SET name = 'mallory' WHERE id = (SELECT key_id FROM past_requests WHERE id = '$P')
DELETE FROM chain WHERE last = (SELECT MIN(last) FROM chain WHERE last > (SELECT MIN(last) FROM chain))
DELETE FROM chain WHERE last = (SELECT MAX(last) FROM chain)
UPDATE chain SET digest = 'x' WHERE last = (SELECT MIN(last) FROM chain)

-- A request that is gone everywhere: rows, bookings and sums agree with each other, and not with the chain.
DELETE FROM past_requests WHERE id = '$GONE'
DELETE FROM past_attempts WHERE request_id = '$GONE'
DELETE FROM past_decisions WHERE id = '$GONE'
UPDATE bookings SET charged = charged - (SELECT p.charged FROM past_bookings AS p JOIN names AS n ON n.id = p.account WHERE p.request_id = '$GONE' AND n.name = bookings.account) WHERE EXISTS (SELECT 1 FROM past_bookings AS p JOIN names AS n ON n.id = p.account WHERE p.request_id = '$GONE' AND n.name = bookings.account AND bookings.request_id = 'packed-' || p.window_start_ms)
DELETE FROM past_bookings WHERE request_id = '$GONE'
DELETE FROM hourly_attempts
DELETE FROM hourly_offers
DELETE FROM progress WHERE name NOT IN ('moved', 'expired', 'swept')

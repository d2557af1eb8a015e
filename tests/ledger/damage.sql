-- Much of it at once, as far as one does not hide the other.
UPDATE requests SET cost = cost + 1 WHERE id = '$A'; -- requests $A: it cost
UPDATE requests SET reasoning_tokens = -5 WHERE id = '$A'; -- requests $A: it has -5 reasoning
UPDATE requests SET cost = 6 WHERE id = '$C'; -- requests $C: it was recovered at 6
UPDATE attempts SET price_version = '' WHERE request_id = '$B'; -- attempts $B attempt 1: it does not name
UPDATE decisions SET document = '{' WHERE id = '$A'; -- decisions $A: its document can't be read
UPDATE bookings SET charged = 3 WHERE request_id = '$C'; -- bookings $C in day: it was recovered at 3, and held
UPDATE outcomes SET request_id = 'x' WHERE request_id = '$B'; -- about x: there is no such request
UPDATE outcomes SET target = 'x' WHERE request_id = '$OLD'; -- about $OLD: its request has no attempt 1 at x
UPDATE requests SET lease_until_ms = 5 WHERE id = '$H'; -- requests $H: it is held, and its lease ended at 5
UPDATE segments SET previous = 17; -- it follows 17, and the one before it is 0
UPDATE segments SET requests = 89; -- it has 90 requests, and should have 89
UPDATE bookings SET charged = charged + 1 WHERE request_id LIKE 'packed-%'; -- packed requests were charged

-- Each alone.
UPDATE attempts SET cost = cost + 1 WHERE request_id = '$A'; -- requests $A: it cost
UPDATE attempts SET cost = -1 WHERE request_id = '$A'; -- attempts $A attempt 1: it cost -1
UPDATE requests SET input_tokens = 1 WHERE id = '$A'; -- requests $A: it has 1 input_tokens
UPDATE attempts SET output_visible = 9999999 WHERE request_id = '$A'; -- requests $A: it has
UPDATE requests SET thinking = 1000000 WHERE id = '$A'; -- requests $A: it was charged 1000000
UPDATE attempts SET number = 2 WHERE request_id = '$A'; -- requests $A: its attempts are numbered 2
DELETE FROM attempts WHERE request_id = '$A'; -- requests $A: its attempts are numbered none
UPDATE requests SET state = 'lost' WHERE id = '$A'; -- requests $A: there is no state 'lost'
UPDATE requests SET state = 'released' WHERE id = '$A'; -- requests $A: it was released, and cost
UPDATE requests SET cost = 1 WHERE id = '$H'; -- requests $H: it is held, and cost 1
DELETE FROM requests WHERE id = '$A'; -- attempts $A: there is no such request
UPDATE decisions SET document = '{"id":"x"}' WHERE id = '$A'; -- decisions $A: its document is that of x
UPDATE bookings SET charged = 1000000000000000 WHERE request_id = '$A'; -- bookings $A in company: it is charged
UPDATE bookings SET charged = 3 WHERE request_id = '$H'; -- bookings $H in day: it is charged 3
UPDATE outcomes SET target = 'x' WHERE request_id = '$B'; -- about $B: its request has no attempt 1 at x
UPDATE outcomes SET was_score = 0.5 WHERE request_id = '$B' AND revision = 1; -- about $B: it does not follow on
DELETE FROM segment_parts WHERE part = 'rows.00'; -- it has 0 requests, and should have 90
DELETE FROM segment_parts WHERE part = 'rows.index'; -- it has 0 requests, and should have 90
UPDATE requests SET cost = 9223372036854775807 WHERE id = '$B'; -- requests $B: it cost 9223372036854775807
UPDATE attempts SET cost = -9223372036854775807 WHERE request_id = '$B'; -- attempts $B attempt 1: it cost -92

-- Of budgets that are kept in the ledger itself.
UPDATE budget_windows SET spent = spent + 1 WHERE budget = 'company'; -- budget_windows company from
UPDATE budget_windows SET held = held - 1 WHERE budget = 'day'; -- budget_windows day from 5: it says
INSERT INTO bookings VALUES ('x', 'day', 5, 0, 1, 'settled'); -- bookings x in day: there is no such request
DELETE FROM bookings WHERE request_id = 'c1'; -- children c1: nothing is booked for it in day

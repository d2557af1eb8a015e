-- Money is integer nano-USD, time is Unix ms. NULL is unknown, never 0.
-- Ids are UUIDv7: rows are appended in the order of time, and a span of time is a span of ids.
-- `requests`, `attempts` and `decisions` are views of all that there is: live rows, and narrow ones of the past, whose
-- texts are numbers of `names`. (Where the answer to a commit was lost, rows are written a second time, perhaps after
-- they were moved: these are left out.) Sums by hour are tables.

-- One row a request, and the reservation from birth: held → settled | released | recovered.
CREATE TABLE live_requests (
    id TEXT PRIMARY KEY,
    started_ms BIGINT NOT NULL,
    state TEXT NOT NULL,
    held BIGINT NOT NULL,
    lease_until_ms BIGINT NOT NULL,
    -- the process that renews the lease while it lives
    owner TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    requested TEXT NOT NULL,
    route TEXT NOT NULL,
    stream INTEGER NOT NULL,
    key_id TEXT NOT NULL,
    session TEXT NOT NULL,
    tags TEXT NOT NULL,
    data_class TEXT NOT NULL,
    task TEXT NOT NULL,
    difficulty REAL NOT NULL,
    -- known once settled
    target TEXT,
    model TEXT,
    status INTEGER,
    error TEXT,
    cost BIGINT,
    input_tokens BIGINT,
    output_tokens BIGINT,
    reasoning_tokens BIGINT,
    total_ms BIGINT,
    first_ms BIGINT,
    held_thinking BIGINT NOT NULL DEFAULT 0,
    -- charged thinking tokens, as `cost` is the charged money
    thinking BIGINT,
    overrun INTEGER NOT NULL DEFAULT 0,
    -- what was lowered so that the request fitted its budgets
    lowered TEXT NOT NULL DEFAULT '',
    -- every class that was seen, in the order of the alphabet, joined by commas; data_class is the highest of them
    classes TEXT NOT NULL DEFAULT '',
    -- policies.hash
    policy TEXT NOT NULL DEFAULT '',
    -- microseconds in which we were busy and no target was
    overhead_us BIGINT,
    app TEXT NOT NULL DEFAULT '',
    template TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

CREATE INDEX requests_held ON live_requests (lease_until_ms) WHERE state = 'held';

-- One row an attempt, priced at the target that served it.
CREATE TABLE live_attempts (
    request_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    target TEXT NOT NULL,
    model TEXT NOT NULL,
    provider TEXT NOT NULL,
    model_served TEXT NOT NULL,
    outcome TEXT NOT NULL,
    upstream_status INTEGER,
    finish_reason TEXT NOT NULL,
    -- 0: nothing for the client, as when thinking used up the cap; a failed pass
    answered INTEGER NOT NULL,
    thinking TEXT NOT NULL,
    started_ms BIGINT NOT NULL,
    total_ms BIGINT NOT NULL,
    first_ms BIGINT,
    input_uncached BIGINT,
    cache_read BIGINT,
    cache_write BIGINT,
    cache_write_1h BIGINT,
    input_audio BIGINT,
    output_visible BIGINT,
    output_reasoning BIGINT,
    output_audio BIGINT,
    usage_source TEXT,
    reasoning_source TEXT,
    violations TEXT NOT NULL,
    cost BIGINT NOT NULL,
    cost_source TEXT NOT NULL,
    price_version TEXT NOT NULL,
    -- Everything that the price of an attempt depends on, so that it can be computed again.
    cache_read_explicit BIGINT,
    cache_read_audio BIGINT,
    cache_write_12h BIGINT,
    input_image BIGINT,
    input_video BIGINT,
    output_image BIGINT,
    output_video BIGINT,
    -- what is not counted in tokens: JSON, e.g. {"web_search":2}; empty: none
    units TEXT NOT NULL DEFAULT '',
    service_tier TEXT NOT NULL DEFAULT '',
    region TEXT NOT NULL DEFAULT '',
    -- what our price makes of the usage; `cost` differs from it where the provider states another amount
    own_cost BIGINT,
    -- 1: the report contradicted itself or named something without a price, and was settled at the larger reading
    flagged INTEGER NOT NULL DEFAULT 0,
    -- those of what was sent; empty: not known
    classes TEXT NOT NULL DEFAULT '',
    -- 1: it had placeholders in the place of what was found
    redacted INTEGER NOT NULL DEFAULT 0,
    -- who says that it was served in `region`: verified (the provider), mismatch (the provider, and it is another one than
    -- the target's), asserted (the policy); empty: unknown
    region_source TEXT NOT NULL DEFAULT '',
    -- why it was made: as a level of a cascade, as a sample of a vote, as a hedge; empty: to answer
    role TEXT NOT NULL DEFAULT '',
    -- 1: it was answered, but the client was not given this answer
    passed_over INTEGER NOT NULL DEFAULT 0,
    -- the least score of its answer, 0 to 1, where that was looked at before it was given and anything could be said
    verdict REAL,
    -- JSON: verifier -> score or null; empty: not looked at
    verdicts TEXT NOT NULL DEFAULT '',
    -- nano-USD that an attempt's reasoning cost, and that its cached input cost less than it would have uncached; NULL:
    -- not worked out
    thinking_cost BIGINT,
    cache_saved BIGINT,
    PRIMARY KEY (request_id, number)
) WITHOUT ROWID;

-- One row a decision; `document` is the JSON of router.decide.explain.Explained: no text, no secret.
CREATE TABLE live_decisions (
    id TEXT PRIMARY KEY,
    decided_ms BIGINT NOT NULL,
    policy TEXT NOT NULL,
    document TEXT NOT NULL
) WITHOUT ROWID;

-- What each budget has spent and held in each window; changed in the same transaction as the rows it sums.
CREATE TABLE budget_windows (
    budget TEXT NOT NULL,
    window_start_ms BIGINT NOT NULL,
    spent BIGINT NOT NULL,
    held BIGINT NOT NULL,
    PRIMARY KEY (budget, window_start_ms)
) WITHOUT ROWID;

-- Keys are stored as SHA-256 of the whole key; the secret is shown once.
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    revoked_ms BIGINT,
    routes TEXT NOT NULL,
    targets TEXT NOT NULL,
    tags TEXT NOT NULL,
    scopes TEXT NOT NULL,
    budget TEXT NOT NULL,
    team TEXT NOT NULL DEFAULT '',
    organisation TEXT NOT NULL DEFAULT '',
    -- a class that binds all that it sends; empty: the policy's default
    min_class TEXT NOT NULL DEFAULT '',
    -- nano-USD in a window
    limit_nano BIGINT,
    limit_window TEXT NOT NULL DEFAULT '',
    -- requests and tokens a minute, requests in progress
    rpm BIGINT,
    tpm BIGINT,
    parallel BIGINT,
    expires_ms BIGINT,
    used_ms BIGINT,
    -- The secret before the last rotation, and until when it is valid.
    previous_hash TEXT,
    previous_until_ms BIGINT
);

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
-- One row a session, a key or a conversation with a streak; `document` is the JSON of router.budget.loops.
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

-- Shares of a budget's limit (in ten-thousandths) that were told, so that they are told once.
CREATE TABLE alerts (
    account TEXT NOT NULL,
    window_start_ms BIGINT NOT NULL,
    share BIGINT NOT NULL,
    PRIMARY KEY (account, window_start_ms, share)
) WITHOUT ROWID;

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

-- One row: what makes placeholders of redacted values that only this installation can tie to them.
CREATE TABLE instance (
    id BIGINT PRIMARY KEY,
    secret TEXT NOT NULL
) WITHOUT ROWID;

-- How good answers were. The one log that every gateway tails and learns from: rows are added, never changed.
-- A later row of the same source and attempt (the next revision) stands in the place of the earlier one, and says what
-- that one was, so that what was learned from it can be taken back.
CREATE TABLE outcomes (
    -- grows from row to row
    position INTEGER /* counted */ PRIMARY KEY,
    request_id TEXT NOT NULL,
    -- attempts.number
    attempt INTEGER NOT NULL,
    target TEXT NOT NULL,
    -- client | client.NAME | verifier.NAME | judge.TARGET
    source TEXT NOT NULL,
    revision INTEGER NOT NULL,
    -- 0 to 1; NULL: it contradicted itself
    score REAL,
    weight REAL NOT NULL,
    was_score REAL,
    was_weight REAL NOT NULL,
    was_ms BIGINT,
    -- 0: its yes means only that nothing wrong was seen
    decides INTEGER NOT NULL,
    task TEXT NOT NULL,
    difficulty REAL NOT NULL,
    -- base64 of signed bytes, as in decisions.document; empty: the request was not read
    traits TEXT NOT NULL,
    -- the pass rate that was expected of the target
    expected REAL,
    given_ms BIGINT NOT NULL,
    -- the client's own, against telling the same thing twice
    told_key TEXT NOT NULL,
    app TEXT NOT NULL DEFAULT '',
    template TEXT NOT NULL DEFAULT '',
    UNIQUE (request_id, attempt, source, revision)
);

-- What was learned up to a position of the log, so that a start need not read all of it. `state` is base64.
CREATE TABLE posteriors (
    name TEXT PRIMARY KEY,
    position BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    state TEXT NOT NULL
) WITHOUT ROWID;

-- SQLite only, from here
-- What leaves the bookings leaves the window: what moves rows books their sum first.
CREATE TRIGGER unbooked AFTER DELETE ON bookings
BEGIN
    UPDATE budget_windows SET
        spent = spent - coalesce(old.charged, 0),
        held = held - CASE WHEN old.charged IS NULL THEN old.held ELSE 0 END
    WHERE budget = old.account AND window_start_ms = old.window_start_ms;
END;

-- to here
-- Rows are added, never changed: charges name them.
CREATE TABLE engine_prices (
    -- "measured ENGINE TIME", as in attempts.price_version
    version TEXT PRIMARY KEY,
    engine TEXT NOT NULL,
    -- the name of the machine whose gateway measured it
    gateway TEXT NOT NULL,
    since_ms BIGINT NOT NULL,
    -- nano-USD per million tokens
    input BIGINT NOT NULL,
    cached BIGINT NOT NULL,
    output BIGINT NOT NULL,
    -- marginal | full: which hours of the machine they pay for
    counted TEXT NOT NULL,
    -- nano-USD for an hour of all replicas
    hourly BIGINT NOT NULL,
    -- what they come from; what is older counts for less. All hours, and those in which it worked …
    wall_ms BIGINT NOT NULL,
    busy_ms BIGINT NOT NULL,
    -- … and the tokens of the last minutes of work
    uncached_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL
) WITHOUT ROWID;

CREATE INDEX engine_prices_since ON engine_prices (since_ms);

CREATE INDEX engine_prices_engine ON engine_prices (engine, gateway, since_ms);

-- Sums of all replicas; they only grow.
CREATE TABLE engine_hours (
    engine TEXT NOT NULL,
    -- Unix hours
    hour BIGINT NOT NULL,
    gateway TEXT NOT NULL,
    -- 1: lowpass does not run it, so that every gateway that watches it sees all of it
    external BIGINT NOT NULL,
    -- it was up; at least one request was running; requests running, each by itself
    wall_ms BIGINT NOT NULL,
    busy_ms BIGINT NOT NULL,
    request_ms BIGINT NOT NULL,
    uncached_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    -- as the engine sums them over its requests
    prefill_ms BIGINT NOT NULL,
    decode_ms BIGINT NOT NULL,
    finished BIGINT NOT NULL,
    rejected BIGINT NOT NULL,
    preempted BIGINT NOT NULL,
    restarts BIGINT NOT NULL,
    -- nano-USD for wall_ms
    cost BIGINT NOT NULL,
    -- millijoule that the site drew for it: by the GPUs' own meters, and else by the watts that its spec declares;
    -- NULL: not known
    energy_mj BIGINT,
    declared_mj BIGINT,
    PRIMARY KEY (engine, hour, gateway)
) WITHOUT ROWID;

CREATE TABLE names (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

-- Requests that nothing changes any more, in the order in which they were moved here.
-- A number in the place of a text is names.id.
CREATE TABLE past_requests (
    position INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    started_ms BIGINT NOT NULL,
    state INTEGER NOT NULL,
    held BIGINT NOT NULL,
    lease_until_ms BIGINT NOT NULL,
    owner INTEGER NOT NULL,
    endpoint INTEGER NOT NULL,
    requested INTEGER NOT NULL,
    route INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    key_id INTEGER NOT NULL,
    session TEXT NOT NULL,
    tags INTEGER NOT NULL,
    data_class INTEGER NOT NULL,
    task INTEGER NOT NULL,
    difficulty REAL NOT NULL,
    target INTEGER,
    model INTEGER,
    status INTEGER,
    error INTEGER,
    cost BIGINT,
    input_tokens BIGINT,
    output_tokens BIGINT,
    reasoning_tokens BIGINT,
    total_ms BIGINT,
    first_ms BIGINT,
    held_thinking BIGINT NOT NULL,
    thinking BIGINT,
    overrun INTEGER NOT NULL,
    lowered INTEGER NOT NULL,
    classes INTEGER NOT NULL,
    policy INTEGER NOT NULL,
    overhead_us BIGINT,
    -- names.id; NULL: the request is older than this version
    app INTEGER,
    template INTEGER
);

CREATE INDEX past_requests_started ON past_requests (started_ms);

CREATE TABLE past_attempts (
    request_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    target INTEGER NOT NULL,
    model INTEGER NOT NULL,
    provider INTEGER NOT NULL,
    model_served INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    upstream_status INTEGER,
    finish_reason INTEGER NOT NULL,
    answered INTEGER NOT NULL,
    thinking INTEGER NOT NULL,
    started_ms BIGINT NOT NULL,
    total_ms BIGINT NOT NULL,
    first_ms BIGINT,
    input_uncached BIGINT,
    cache_read BIGINT,
    cache_write BIGINT,
    cache_write_1h BIGINT,
    input_audio BIGINT,
    output_visible BIGINT,
    output_reasoning BIGINT,
    output_audio BIGINT,
    usage_source INTEGER,
    reasoning_source INTEGER,
    violations TEXT NOT NULL,
    cost BIGINT NOT NULL,
    cost_source INTEGER NOT NULL,
    price_version INTEGER NOT NULL,
    cache_read_explicit BIGINT,
    cache_read_audio BIGINT,
    cache_write_12h BIGINT,
    input_image BIGINT,
    input_video BIGINT,
    output_image BIGINT,
    output_video BIGINT,
    units TEXT NOT NULL,
    service_tier INTEGER NOT NULL,
    region INTEGER NOT NULL,
    own_cost BIGINT,
    flagged INTEGER NOT NULL,
    classes INTEGER NOT NULL,
    redacted INTEGER NOT NULL,
    region_source INTEGER NOT NULL,
    role INTEGER NOT NULL,
    passed_over INTEGER NOT NULL,
    verdict REAL,
    verdicts TEXT NOT NULL,
    thinking_cost BIGINT,
    cache_saved BIGINT,
    PRIMARY KEY (request_id, number)
) WITHOUT ROWID;

-- What moved requests booked and were charged; what was not settled when they moved is in `bookings` still, and so are
-- the sums of what is here, under 'packed-' and the window.
CREATE TABLE past_bookings (
    request_id TEXT NOT NULL,
    account INTEGER NOT NULL,
    window_start_ms BIGINT NOT NULL,
    held BIGINT NOT NULL,
    charged BIGINT NOT NULL,
    PRIMARY KEY (request_id, account)
) WITHOUT ROWID;

-- `document`: raw deflate, with the dictionary of this number (0: none).
CREATE TABLE past_decisions (
    id TEXT PRIMARY KEY,
    decided_ms BIGINT NOT NULL,
    policy INTEGER NOT NULL,
    dictionary INTEGER NOT NULL,
    document BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE dictionaries (
    id INTEGER PRIMARY KEY,
    policy TEXT NOT NULL UNIQUE,
    data BLOB NOT NULL
);

-- 'moved': the last position; 'expired': Unix ms before which rows are gone; else a grouping's name: up to which
-- position its sums count.
CREATE TABLE progress (
    name TEXT PRIMARY KEY,
    position BIGINT NOT NULL
) WITHOUT ROWID;

INSERT INTO progress VALUES ('moved', 0);

INSERT INTO progress VALUES ('expired', 0);

-- What sums tell apart: `labels` is a JSON array, in the order of the dimensions in `grouping_name`.
CREATE TABLE sum_groups (
    id INTEGER PRIMARY KEY,
    grouping_name TEXT NOT NULL,
    labels TEXT NOT NULL,
    UNIQUE (grouping_name, labels)
);

-- router.ledger.facts.attempts, summed by hour.
CREATE TABLE hourly_attempts (
    -- names.id of the grouping
    grouping_id INTEGER NOT NULL,
    -- Unix hours
    hour BIGINT NOT NULL,
    group_id INTEGER NOT NULL,
    requests BIGINT NOT NULL,
    errors BIGINT NOT NULL,
    lowered_requests BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    failed_attempts BIGINT NOT NULL,
    passed_over BIGINT NOT NULL,
    answers BIGINT NOT NULL,
    answers_cost BIGINT NOT NULL,
    cost_square BIGINT NOT NULL,
    retries BIGINT NOT NULL,
    fallbacks BIGINT NOT NULL,
    sent_requests BIGINT NOT NULL,
    sent_there BIGINT NOT NULL,
    unwritten BIGINT NOT NULL,
    counted BIGINT NOT NULL,
    split BIGINT NOT NULL,
    unsplit BIGINT NOT NULL,
    unpriced BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    split_output BIGINT NOT NULL,
    input_uncached BIGINT NOT NULL,
    cache_read BIGINT NOT NULL,
    cache_read_explicit BIGINT NOT NULL,
    cache_read_audio BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    cache_write_1h BIGINT NOT NULL,
    cache_write_12h BIGINT NOT NULL,
    input_audio BIGINT NOT NULL,
    input_image BIGINT NOT NULL,
    input_video BIGINT NOT NULL,
    output_visible BIGINT NOT NULL,
    output_reasoning BIGINT NOT NULL,
    output_audio BIGINT NOT NULL,
    output_image BIGINT NOT NULL,
    output_video BIGINT NOT NULL,
    cost BIGINT NOT NULL,
    own_cost BIGINT NOT NULL,
    recovered BIGINT NOT NULL,
    held BIGINT NOT NULL,
    request_held BIGINT NOT NULL,
    request_thinking BIGINT NOT NULL,
    overruns BIGINT NOT NULL,
    thinking_cost BIGINT NOT NULL,
    thinking_known BIGINT NOT NULL,
    thinking_of BIGINT NOT NULL,
    cache_saved BIGINT NOT NULL,
    passed_over_cost BIGINT NOT NULL,
    lowered_effort BIGINT NOT NULL,
    cut BIGINT NOT NULL,
    wasted BIGINT NOT NULL,
    wasted_tokens BIGINT NOT NULL,
    wasted_cost BIGINT NOT NULL,
    total_ms_sum BIGINT NOT NULL,
    first_ms_sum BIGINT NOT NULL,
    PRIMARY KEY (grouping_id, hour, group_id)
) WITHOUT ROWID;

-- router.ledger.facts.offers, summed by hour.
CREATE TABLE hourly_offers (
    -- names.id of the grouping
    grouping_id INTEGER NOT NULL,
    -- Unix hours
    hour BIGINT NOT NULL,
    group_id INTEGER NOT NULL,
    requests BIGINT NOT NULL,
    answered BIGINT NOT NULL,
    expected BIGINT NOT NULL,
    rated BIGINT NOT NULL,
    pass_e4 BIGINT NOT NULL,
    actual BIGINT NOT NULL,
    answered_expected BIGINT NOT NULL,
    answered_rated BIGINT NOT NULL,
    answered_pass_e4 BIGINT NOT NULL,
    answered_actual BIGINT NOT NULL,
    PRIMARY KEY (grouping_id, hour, group_id)
) WITHOUT ROWID;

CREATE VIEW past_attempts_named AS SELECT
        p.request_id,
        p.number,
        (SELECT name FROM names WHERE names.id = p.target) AS target,
        (SELECT name FROM names WHERE names.id = p.model) AS model,
        (SELECT name FROM names WHERE names.id = p.provider) AS provider,
        (SELECT name FROM names WHERE names.id = p.model_served) AS model_served,
        (SELECT name FROM names WHERE names.id = p.outcome) AS outcome,
        p.upstream_status,
        (SELECT name FROM names WHERE names.id = p.finish_reason) AS finish_reason,
        p.answered,
        (SELECT name FROM names WHERE names.id = p.thinking) AS thinking,
        p.started_ms,
        p.total_ms,
        p.first_ms,
        p.input_uncached,
        p.cache_read,
        p.cache_write,
        p.cache_write_1h,
        p.input_audio,
        p.output_visible,
        p.output_reasoning,
        p.output_audio,
        (SELECT name FROM names WHERE names.id = p.usage_source) AS usage_source,
        (SELECT name FROM names WHERE names.id = p.reasoning_source) AS reasoning_source,
        p.violations,
        p.cost,
        (SELECT name FROM names WHERE names.id = p.cost_source) AS cost_source,
        (SELECT name FROM names WHERE names.id = p.price_version) AS price_version,
        p.cache_read_explicit,
        p.cache_read_audio,
        p.cache_write_12h,
        p.input_image,
        p.input_video,
        p.output_image,
        p.output_video,
        p.units,
        (SELECT name FROM names WHERE names.id = p.service_tier) AS service_tier,
        (SELECT name FROM names WHERE names.id = p.region) AS region,
        p.own_cost,
        p.flagged,
        (SELECT name FROM names WHERE names.id = p.classes) AS classes,
        p.redacted,
        (SELECT name FROM names WHERE names.id = p.region_source) AS region_source,
        (SELECT name FROM names WHERE names.id = p.role) AS role,
        p.passed_over,
        p.verdict,
        p.verdicts,
        p.thinking_cost,
        p.cache_saved
    FROM past_attempts AS p;

CREATE VIEW attempts AS
    SELECT request_id, number, target, model, provider, model_served, outcome, upstream_status, finish_reason,
        answered, thinking, started_ms, total_ms, first_ms, input_uncached, cache_read, cache_write, cache_write_1h,
        input_audio, output_visible, output_reasoning, output_audio, usage_source, reasoning_source, violations, cost,
        cost_source, price_version, cache_read_explicit, cache_read_audio, cache_write_12h, input_image, input_video,
        output_image, output_video, units, service_tier, region, own_cost, flagged, classes, redacted, region_source,
        role, passed_over, verdict, verdicts, thinking_cost, cache_saved FROM live_attempts AS l
    WHERE NOT EXISTS (SELECT 1 FROM past_requests AS p WHERE p.id = l.request_id)
    UNION ALL
    SELECT request_id, number, target, model, provider, model_served, outcome, upstream_status, finish_reason,
        answered, thinking, started_ms, total_ms, first_ms, input_uncached, cache_read, cache_write, cache_write_1h,
        input_audio, output_visible, output_reasoning, output_audio, usage_source, reasoning_source, violations, cost,
        cost_source, price_version, cache_read_explicit, cache_read_audio, cache_write_12h, input_image, input_video,
        output_image, output_video, units, service_tier, region, own_cost, flagged, classes, redacted, region_source,
        role, passed_over, verdict, verdicts, thinking_cost, cache_saved FROM past_attempts_named;

-- Documents are in live_decisions and past_decisions.
CREATE VIEW decisions AS
    SELECT id, decided_ms, policy FROM live_decisions AS l
    WHERE NOT EXISTS (SELECT 1 FROM past_decisions AS p WHERE p.id = l.id)
    UNION ALL SELECT p.id, p.decided_ms, (SELECT name FROM names WHERE names.id = p.policy) FROM past_decisions AS p;

CREATE VIEW past_requests_named AS SELECT
        p.position,
        p.id,
        p.started_ms,
        (SELECT name FROM names WHERE names.id = p.state) AS state,
        p.held,
        p.lease_until_ms,
        (SELECT name FROM names WHERE names.id = p.owner) AS owner,
        (SELECT name FROM names WHERE names.id = p.endpoint) AS endpoint,
        (SELECT name FROM names WHERE names.id = p.requested) AS requested,
        (SELECT name FROM names WHERE names.id = p.route) AS route,
        p.stream,
        (SELECT name FROM names WHERE names.id = p.key_id) AS key_id,
        p.session,
        (SELECT name FROM names WHERE names.id = p.tags) AS tags,
        (SELECT name FROM names WHERE names.id = p.data_class) AS data_class,
        (SELECT name FROM names WHERE names.id = p.task) AS task,
        p.difficulty,
        (SELECT name FROM names WHERE names.id = p.target) AS target,
        (SELECT name FROM names WHERE names.id = p.model) AS model,
        p.status,
        (SELECT name FROM names WHERE names.id = p.error) AS error,
        p.cost,
        p.input_tokens,
        p.output_tokens,
        p.reasoning_tokens,
        p.total_ms,
        p.first_ms,
        p.held_thinking,
        p.thinking,
        p.overrun,
        (SELECT name FROM names WHERE names.id = p.lowered) AS lowered,
        (SELECT name FROM names WHERE names.id = p.classes) AS classes,
        (SELECT name FROM names WHERE names.id = p.policy) AS policy,
        p.overhead_us,
        COALESCE((SELECT name FROM names WHERE names.id = p.app), '') AS app,
        COALESCE((SELECT name FROM names WHERE names.id = p.template), '') AS template
    FROM past_requests AS p;

CREATE VIEW requests AS
    SELECT id, started_ms, state, held, lease_until_ms, owner, endpoint, requested, route, stream, key_id, session,
        tags, data_class, task, difficulty, target, model, status, error, cost, input_tokens, output_tokens,
        reasoning_tokens, total_ms, first_ms, held_thinking, thinking, overrun, lowered, classes, policy, overhead_us,
        app, template FROM live_requests AS l
    WHERE NOT EXISTS (SELECT 1 FROM past_requests AS p WHERE p.id = l.id)
    UNION ALL
    SELECT id, started_ms, state, held, lease_until_ms, owner, endpoint, requested, route, stream, key_id, session,
        tags, data_class, task, difficulty, target, model, status, error, cost, input_tokens, output_tokens,
        reasoning_tokens, total_ms, first_ms, held_thinking, thinking, overrun, lowered, classes, policy, overhead_us,
        app, template FROM past_requests_named;

-- `id`: of a budget of the policy, or of one of its accounts. `size`: nano-USD or thinking tokens.
CREATE TABLE budget_limits (
    id TEXT PRIMARY KEY,
    size BIGINT NOT NULL,
    set_ms BIGINT NOT NULL,
    set_by TEXT NOT NULL,
    expires_ms BIGINT
) WITHOUT ROWID;

-- `actor`: the name of a key, or `command line`. `document`: what was changed, as JSON.
CREATE TABLE audit (
    id TEXT PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    document TEXT NOT NULL
) WITHOUT ROWID;

-- Corrections of charges. `id`: of the row that books it, which stands among the requests with the endpoint
-- 'adjustment'; `request_id`: of the request whose charge it corrects, empty where it corrects those of a day and model.
CREATE TABLE adjustments (
    id TEXT PRIMARY KEY,
    request_id TEXT NOT NULL,
    given_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    source TEXT NOT NULL,
    cause TEXT NOT NULL,
    reason TEXT NOT NULL,
    -- nano-USD that it adds; negative: that it gives back
    cost BIGINT NOT NULL
) WITHOUT ROWID;

CREATE INDEX adjustments_request ON adjustments (request_id);

-- What statements of providers taught: by how much what was estimated for attempts at a target was billed in truth.
CREATE TABLE billing (
    target TEXT PRIMARY KEY,
    factor REAL NOT NULL,
    at_ms BIGINT NOT NULL,
    source TEXT NOT NULL
) WITHOUT ROWID;

-- Batches of past_requests, by position: a digest over their rows and the digest before (router/ledger/chain.py).
-- `complete`: 0 once some of them have expired.
CREATE TABLE chain (
    last BIGINT PRIMARY KEY,
    first BIGINT NOT NULL,
    digest TEXT NOT NULL,
    complete INTEGER NOT NULL
) WITHOUT ROWID;

-- The oldest version of lowpass that can use this ledger. A later migration that only adds (tables, columns with a
-- default or without NOT NULL, indexes) leaves it; one that takes away or changes sets it to its own number.
CREATE TABLE compatible (
    version BIGINT NOT NULL
);

INSERT INTO compatible VALUES (14);

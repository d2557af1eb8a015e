-- Rows of the past are narrow: texts that come again and again are numbers of `names`. Sums by hour are tables.
-- `requests`, `attempts` and `decisions` are views of all that there is: live rows, and those of the past. (Where the
-- answer to a commit was lost, rows are written a second time, perhaps after they were moved: these are left out.)
-- What versions 10 and 11 had packed follows (router/ledger/segments.py), and their tables go then.

ALTER TABLE requests RENAME TO live_requests;
ALTER TABLE attempts RENAME TO live_attempts;
ALTER TABLE decisions RENAME TO live_decisions;

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
    overhead_us BIGINT
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
        p.overhead_us
    FROM past_requests AS p;

CREATE VIEW requests AS
    SELECT id, started_ms, state, held, lease_until_ms, owner, endpoint, requested, route, stream, key_id, session,
        tags, data_class, task, difficulty, target, model, status, error, cost, input_tokens, output_tokens,
        reasoning_tokens, total_ms, first_ms, held_thinking, thinking, overrun, lowered, classes, policy, overhead_us
        FROM live_requests AS l
    WHERE NOT EXISTS (SELECT 1 FROM past_requests AS p WHERE p.id = l.id)
    UNION ALL
    SELECT id, started_ms, state, held, lease_until_ms, owner, endpoint, requested, route, stream, key_id, session,
        tags, data_class, task, difficulty, target, model, status, error, cost, input_tokens, output_tokens,
        reasoning_tokens, total_ms, first_ms, held_thinking, thinking, overrun, lowered, classes, policy, overhead_us
        FROM past_requests_named;

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

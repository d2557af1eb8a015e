-- loses the applications and templates of requests: SELECT 1 FROM requests WHERE app <> '' OR template <> ''
DROP VIEW requests;
DROP VIEW past_requests_named;
ALTER TABLE live_requests DROP COLUMN app;
ALTER TABLE live_requests DROP COLUMN template;
ALTER TABLE past_requests DROP COLUMN app;
ALTER TABLE past_requests DROP COLUMN template;
ALTER TABLE outcomes DROP COLUMN app;
ALTER TABLE outcomes DROP COLUMN template;

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

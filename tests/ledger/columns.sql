SELECT c.table_name AS "table", c.column_name AS "column", upper(c.data_type) AS kind,
    CASE WHEN c.is_nullable = 'NO' THEN 1 ELSE 0 END AS required,
    replace(c.column_default, '::text', '') AS def,
    CASE WHEN k.column_name IS NULL THEN 0 ELSE 1 END AS keyed
FROM information_schema.columns c LEFT JOIN (
    SELECT table_name, column_name FROM information_schema.key_column_usage
    JOIN information_schema.table_constraints USING (constraint_name, table_name)
    WHERE constraint_type = 'PRIMARY KEY'
) k USING (table_name, column_name)
WHERE c.table_schema = 'public' AND c.table_name <> 'schema_version' AND c.table_name NOT IN (
    SELECT table_name FROM information_schema.views
)

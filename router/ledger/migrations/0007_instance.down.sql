-- loses the secret of placeholders: SELECT 1 FROM instance
DROP TABLE instance;

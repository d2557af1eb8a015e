-- loses secrets of keys that were rotated several times: SELECT 1 FROM previous_secrets
DROP TABLE previous_secrets;
DROP TABLE seals;
DELETE FROM progress WHERE name = 'unsealed';

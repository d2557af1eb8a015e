-- loses which alerts were told: SELECT 1 FROM alerts
DROP TABLE alerts;

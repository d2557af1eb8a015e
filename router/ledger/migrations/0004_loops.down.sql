-- loses incidents: SELECT 1 FROM incidents
-- loses streaks of the loop breaker: SELECT 1 FROM loops
DROP TABLE incidents;
DROP TABLE loops;

-- loses what local engines did: SELECT 1 FROM engine_hours
-- loses what tokens of local engines cost: SELECT 1 FROM engine_prices
DROP TABLE engine_hours;
DROP TABLE engine_prices;

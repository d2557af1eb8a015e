-- loses limits of keys: SELECT 1 FROM keys WHERE limit_nano IS NOT NULL OR rpm IS NOT NULL OR tpm IS NOT NULL OR parallel IS NOT NULL OR expires_ms IS NOT NULL
-- loses limits of budgets: SELECT 1 FROM budget_limits
-- loses which charges were corrected, and why: SELECT 1 FROM adjustments
-- loses the audit: SELECT 1 FROM audit
ALTER TABLE keys DROP COLUMN previous_until_ms;
ALTER TABLE keys DROP COLUMN previous_hash;
ALTER TABLE keys DROP COLUMN used_ms;
ALTER TABLE keys DROP COLUMN expires_ms;
ALTER TABLE keys DROP COLUMN parallel;
ALTER TABLE keys DROP COLUMN tpm;
ALTER TABLE keys DROP COLUMN rpm;
ALTER TABLE keys DROP COLUMN limit_window;
ALTER TABLE keys DROP COLUMN limit_nano;
DROP TABLE compatible;
DROP TABLE chain;
DROP TABLE billing;
DROP TABLE adjustments;
DROP TABLE audit;
DROP TABLE budget_limits;

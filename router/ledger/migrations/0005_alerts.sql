-- Shares of a budget's limit (in ten-thousandths) that were told, so that nobody tells them again.
CREATE TABLE alerts (
    account TEXT NOT NULL,
    window_start_ms BIGINT NOT NULL,
    share BIGINT NOT NULL,
    PRIMARY KEY (account, window_start_ms, share)
) WITHOUT ROWID;

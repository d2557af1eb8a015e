"""Where a finished report goes: a file, a webhook, a mail. Used by `lowpass report`, mostly from cron."""

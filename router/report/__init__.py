"""Reports: functions of ledger rows. One definition serves the command line, the JSON and the dashboard page."""

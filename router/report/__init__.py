"""Reports: pure functions of ledger rows. One definition gives the CLI table, the JSON and the page."""

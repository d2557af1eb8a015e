"""The ledger in PostgreSQL. Nothing here is imported while the ledger is a file: the client library takes a while."""

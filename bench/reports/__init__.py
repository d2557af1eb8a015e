"""What reports cost on large ledgers: bytes a request, seconds a page, rows written a second."""

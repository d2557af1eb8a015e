"""Log lines, spans and metrics of requests. Off unless asked for, and never with any text of a request."""

"""What others may watch of requests: a line each, spans and metrics. Off unless asked for, and never any text."""

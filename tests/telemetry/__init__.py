"""What others may watch: logs, spans, metrics and the dashboard that draws them."""

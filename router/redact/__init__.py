"""Redaction: findings become placeholders in what is sent, and values again in the answer."""

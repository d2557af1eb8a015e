"""Redaction: findings are replaced by placeholders in requests, and placeholders by the values in answers."""

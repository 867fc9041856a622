"""Captures: bodies and answers of requests, redacted and encrypted, kept for a few hours; and the
requests in quarantine. No text is written in plain form or logged."""

"""Captures: bodies and answers of requests, redacted and encrypted, kept for a few hours.

A project turns captures on. `queue` takes them from the web process, `store` redacts
(`documents`, `base/redaction`) and stores them, and `encrypted` encrypts them and
reads them with an audit entry. No text is written in plain form or logged.
"""

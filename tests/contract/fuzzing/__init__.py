"""Schemathesis against the running platform: its settings, and the names of the models."""

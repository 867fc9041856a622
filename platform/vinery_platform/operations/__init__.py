"""Backup, health and metrics."""

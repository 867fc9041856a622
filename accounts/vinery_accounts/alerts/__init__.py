"""Alerts about quotas that are nearly used up."""

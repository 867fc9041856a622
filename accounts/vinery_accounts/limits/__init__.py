"""Limits and quotas: who may use how much, exactly, whatever runs at the same time."""

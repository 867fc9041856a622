"""Outgoing HTTP requests to addresses that users name: resolved once, checked, then connected."""

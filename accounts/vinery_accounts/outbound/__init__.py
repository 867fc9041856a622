"""Outgoing HTTP requests to addresses that users name: resolved once, checked, then connected.
Each caller has a policy and follows redirects, so that every hop is checked like the first URL."""

"""Outgoing HTTP requests to addresses that users name: resolved once, checked, then connected.

`urls` reads a URL, `addresses` knows which addresses are public, `client` resolves, checks and
sends one request. Each caller has a policy and follows redirects, so that every hop is checked like
the first URL.
"""

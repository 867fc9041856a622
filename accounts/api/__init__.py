"""The management API under `/api/`: people, keys, limits and the books, for programs.

Every view asks `accounts.access` what may be seen and done, and changes rows through
`accounts.changes` and `accounts.keys`, which keep the audit log.
"""

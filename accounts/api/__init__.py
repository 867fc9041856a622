"""The management API under `/api/`: people, keys, limits and the books, for programs.

Every view asks `accounts.services.access` what may be seen and done, and changes rows through
`accounts.services.changes` and `accounts.keys.lifecycle`, which keep the audit log.
"""

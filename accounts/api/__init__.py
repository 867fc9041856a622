"""The management API under `/api/`: `accounts/resources` over HTTP, for programs."""

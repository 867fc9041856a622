"""The management API under `/api/`: `resources` over HTTP, for programs."""

"""Use cases: what happens to a request between its door and the engine."""

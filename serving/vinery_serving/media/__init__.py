"""Media of requests: which may be fetched, how they are fetched, and how they are decoded."""

"""Media of requests: rules, fetching and decoding."""

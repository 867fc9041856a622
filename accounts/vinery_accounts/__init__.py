"""People, keys, limits and usage. Knows nothing of how tokens are made."""

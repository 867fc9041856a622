"""A read request gets its prompt, its grammar and its sampling parameters."""

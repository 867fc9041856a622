"""The nouns of a generation: requests, events, results, errors, ids.

Standard library only. Every other room speaks in these types.
"""

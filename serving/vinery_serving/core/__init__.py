"""The nouns of a generation: requests, events, results, errors, ids.

This package imports the standard library only. All other packages of `serving` use its types.
"""

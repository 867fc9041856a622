"""Child processes: how one is started, watched, ended, and ends with its parent.

This room imports the standard library only, so that any process may use it.
"""

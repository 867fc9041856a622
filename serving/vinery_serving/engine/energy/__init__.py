"""The energy that each generation used: the host's counters, divided by the engine's work.

`counters` reads the hardware's counters, `busy` knows how long each engine of the host has
worked, and `meter` divides what was counted among the generations and idle energy.
"""

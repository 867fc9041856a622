"""How much energy each generation took: the machine's counters, divided by work.

`counters` reads what the hardware counts, `busy` knows how long each engine of this machine has
worked, `costs` divides a step among those in it, and `attribution` brings them together: into
the `share` of each generation, and the idle energy, which together are what was counted.
"""

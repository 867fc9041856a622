"""Exactly one usage record for each request, also after a kill, and no SQL while it runs.

entries   lines of a journal: admissions, checkpoints, settlements
journal   the append-only file of one process, which is also its queue
ledger    the interface of a web process, and the thread that moves records to the database
store     settlements → usage records and roll-ups
recovery  the journals of dead processes
losses    what a failing disk and a kill have lost
"""

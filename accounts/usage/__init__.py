"""Exactly one usage row for each request, whatever dies, and nothing on the hot path.

entries   what is written down: admissions, checkpoints, settlements
journal   the append-only file of one process, which is also its queue
ledger    what a web process calls, and the thread that moves rows to the database
store     settlements to rows
recovery  the journals of processes that died
"""

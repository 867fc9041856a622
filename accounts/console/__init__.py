"""The console: what people see of their use, their keys and their limits, under `/console/`.

One file for each page; `period.py` says which time is looked at, `charts.py` draws. What
somebody sees and may do is decided in `accounts.services.access`, every figure comes from
`accounts.usage.reports`, and every change goes through `accounts.keys.lifecycle`, so that it
is audited.
"""

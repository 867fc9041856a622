"""The console under `/console/`: the usage, the keys and the limits of the user.

Each page has a file. `period.py` reads the period of a page, `charts.py` draws. Permissions come
from `services/access`, figures from `usage/reports`, and every change goes
through `resources`.
"""

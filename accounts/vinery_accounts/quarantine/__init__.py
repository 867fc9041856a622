"""The quarantine: requests that ended two engines, kept for all web processes.

A web process finds such a request and refuses it from then on (`vinery_serving/flow`). `queue`
stores it and reads what other processes have found; `store` has the queries, and releases a
request.
"""

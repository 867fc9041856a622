"""How fast a model is on this host: the speed card, and the search for better options. No Django.

`measuring` sends requests to an engine's socket as the gateway does, `bench_job` measures a served
model, `tuning` compares engines with other options, which `tune_job` starts.
"""

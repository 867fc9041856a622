"""How fast a model is on this host: the speed card, and the search for better options. No Django.

`measuring` sends requests to an engine's socket as the gateway does, `card` measures a served
model, `trials` starts engines with other options, and `tuning` compares them.
"""

"""A request in the web process, in stages."""

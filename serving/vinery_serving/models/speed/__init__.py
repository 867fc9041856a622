"""How fast a model is on this host, and the search for better options. No Django."""

"""The node process: keeps one engine process alive for each model that should be loaded."""

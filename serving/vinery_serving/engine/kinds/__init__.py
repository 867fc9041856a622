"""The kinds of engine processes beside the one of texts."""

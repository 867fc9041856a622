"""The `vinery` command."""

"""The messages between a gateway and an engine, and both ends of the socket."""

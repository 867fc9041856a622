"""The only types that cross the process border, and the two ends of the socket."""

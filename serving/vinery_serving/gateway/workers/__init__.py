"""Worker processes: work on a client's input that may take long, within limits, and killable."""

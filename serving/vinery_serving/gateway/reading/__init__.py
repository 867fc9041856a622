"""From a request's body to its prepared form: in the web process if that is quick, else in a
worker process."""

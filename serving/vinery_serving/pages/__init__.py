"""Console and admin pages of models, jobs and media rules."""

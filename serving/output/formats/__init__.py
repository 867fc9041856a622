"""One small file for each family of model output."""

"""The parsers of model output, by family of models."""

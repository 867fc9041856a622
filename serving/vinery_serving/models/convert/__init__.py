"""Converts checkpoints into OpenVINO models, in environments of their own. No Django, no torch."""

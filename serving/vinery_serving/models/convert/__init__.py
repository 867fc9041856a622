"""Converts checkpoints into OpenVINO models, in environments of their own. No Django, no torch.

`checkpoint` knows which release of transformers an architecture needs, `environments` makes an
environment for each release, `conversion` runs the export there and checks the result.
"""

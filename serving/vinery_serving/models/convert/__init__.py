"""Converts checkpoints into OpenVINO models, in environments of their own. No Django, no torch.

`checkpoint` knows which release of transformers an architecture needs, `environments` makes one
environment for each of these, `conversion` runs the export there and checks what it wrote.
"""

"""Makes, exports and measures tiny-embed and tiny-rerank.

They learn from texts that this package writes: wordings of the same meaning belong together, other
meanings of the same topic are near, and other topics are far.
"""

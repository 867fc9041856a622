"""The engine process of embeddings and rerank models: one vector or score for each text."""

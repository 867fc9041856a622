"""The protocols of embeddings, rerank and score."""

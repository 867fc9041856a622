"""Model folders with random weights: graph, weights, tokenizer, files. No torch, no hub."""

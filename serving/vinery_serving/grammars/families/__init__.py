"""How to force calls and answers of each family of models: a file for each way to write
arguments, and the registry, which reads all of them."""

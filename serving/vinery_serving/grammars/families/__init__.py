"""How to force calls and answers in the output of each family of models: one file for each
family, and the registry, which reads all of them."""

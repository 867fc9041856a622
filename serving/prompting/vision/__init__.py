"""How vision models take pictures: their size, their number of tokens, and their markup."""

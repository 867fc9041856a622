"""How many tool calls are read whole, of those that models write in odd and damaged ways."""

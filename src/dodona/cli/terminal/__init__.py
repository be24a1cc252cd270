"""Output to a terminal, and input from it."""

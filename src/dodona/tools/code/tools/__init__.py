"""Tools that let a model search and read code."""

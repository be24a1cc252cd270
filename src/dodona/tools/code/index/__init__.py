"""The code index: building and searching it."""

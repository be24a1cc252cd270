"""The index of code, and searching it."""

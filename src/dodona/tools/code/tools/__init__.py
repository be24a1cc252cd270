"""The code tools that a model can call."""

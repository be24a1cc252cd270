"""The vault tools that a model can call."""

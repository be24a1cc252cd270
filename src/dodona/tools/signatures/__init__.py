"""The signature of a tool's function: type hints, defaults and docstring."""

"""The version of Dodona."""

__version__ = "0.1.0"

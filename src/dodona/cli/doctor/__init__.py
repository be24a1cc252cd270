"""The checks of `dodona doctor`, one module per part of an installation."""

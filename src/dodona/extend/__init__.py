"""The public API of Dodona: decorators for extensions, and apps inside of other programs."""

"""A model that answers from a script, for tests and examples."""

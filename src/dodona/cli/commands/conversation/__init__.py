"""Commands to ask, and to look at conversations and runs."""

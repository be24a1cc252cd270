"""Which model answers: selection, credentials and setup."""

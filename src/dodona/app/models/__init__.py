"""Models of agents: selection, credentials and setup."""

"""The agents that a configuration defines."""

"""Leaves: the functions that the agent's trees call, each declared under a name."""

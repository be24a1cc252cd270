"""Clients of the agent, in this process or through a gateway."""

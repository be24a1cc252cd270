"""How commands reach the agent: in this process or through a gateway."""

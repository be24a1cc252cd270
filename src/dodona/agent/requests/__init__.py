"""How a request reaches the agent, and how it is turned into a run."""

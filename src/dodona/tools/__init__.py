"""Tools that agents can call: the registry, how a call runs, and the built-in tools."""

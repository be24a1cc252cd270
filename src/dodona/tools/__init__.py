"""What agents can do: the registry of tools, how they are called, and the tools themselves."""

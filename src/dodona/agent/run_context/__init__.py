"""The run context: snapshot, dependencies, chunk feed and notices of a running agent."""

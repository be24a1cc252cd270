"""Events of a run, and their delivery to rules and subscribers."""

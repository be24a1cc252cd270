"""Events of a run, and who is told about them."""

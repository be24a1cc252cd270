"""Agents: the limits of a run, the decision about each turn, and the execution of its tree."""

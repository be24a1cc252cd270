"""Limits and settings of runs, and the decision whether to start another turn."""

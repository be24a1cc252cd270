"""Limits and settings of a turn, and the decision whether to go on."""

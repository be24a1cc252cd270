"""Tools to trace, debug, test and reload trees."""

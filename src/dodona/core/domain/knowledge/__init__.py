"""Notes, code, threads and where a text comes from, as data."""

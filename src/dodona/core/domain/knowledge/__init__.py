"""Data types and ports of notes, code and threads."""

"""Which files of a folder are code, and how they are read."""

"""Which files of a folder are code to be read."""

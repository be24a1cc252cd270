"""The resources of a project: notes, code and web access."""

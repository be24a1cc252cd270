"""The index of notes: building and searching it."""

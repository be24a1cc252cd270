"""The index of notes, and searching it."""

"""Projects and their threads."""

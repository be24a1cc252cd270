"""Worker threads for blocking calls."""

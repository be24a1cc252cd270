"""Notes as files: front matter, links and paths."""

"""A model that needs no server: it answers with quotes from search results."""

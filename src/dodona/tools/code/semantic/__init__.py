"""Semantic code search with embeddings."""

"""Searching code by meaning, with embeddings."""

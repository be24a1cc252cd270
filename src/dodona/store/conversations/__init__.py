"""Conversations: their tree, contexts, windows and summaries."""

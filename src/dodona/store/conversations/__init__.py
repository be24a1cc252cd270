"""Conversations: their tree, contexts, sessions, windows and summaries."""

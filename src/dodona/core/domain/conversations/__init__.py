"""Conversations, their tree, contexts and sessions, as data."""

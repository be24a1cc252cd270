"""Requests to agents, and how they become runs."""

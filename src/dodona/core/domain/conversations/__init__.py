"""Data types of conversations, their trees, contexts and sessions."""

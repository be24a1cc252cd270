"""Data types that several packages share."""

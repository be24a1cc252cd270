"""The data that packages share."""

"""The configured agents."""

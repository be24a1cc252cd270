"""Logs and metrics of a running server."""

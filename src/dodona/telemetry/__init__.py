"""Metrics, and the fields that every log record has."""

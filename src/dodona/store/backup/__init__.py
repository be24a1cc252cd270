"""Backups of a store, and restoring them."""

"""API tokens, the audit log, and user settings."""

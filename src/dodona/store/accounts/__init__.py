"""API tokens, the audit log, settings of users and projects."""

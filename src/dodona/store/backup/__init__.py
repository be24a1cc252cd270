"""Creating, verifying and restoring backups of a store."""

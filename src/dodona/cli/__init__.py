"""The `dodona` command."""

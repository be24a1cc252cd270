"""The configuration: reading, checking, editing and reloading it."""

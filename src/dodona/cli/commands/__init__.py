"""The commands. Each module is imported on first use."""

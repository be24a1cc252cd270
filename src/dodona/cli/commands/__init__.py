"""The commands, each in a module that is imported on use."""

"""Commands to run and look after an installation."""

"""Tasks that one agent gives to another."""

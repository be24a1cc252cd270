"""What must be checked before untrusted text has effects."""

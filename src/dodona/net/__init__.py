"""Outbound networking: the HTTP pool, the egress guard and the secret redactor."""

"""Safety checks: untrusted text, and rules that are trees."""

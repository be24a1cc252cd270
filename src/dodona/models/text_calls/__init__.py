"""Tool calls that a model writes as text instead of using the API for them."""

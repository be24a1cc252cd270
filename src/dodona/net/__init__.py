"""Below everything that speaks to the outside: HTTP pool, address guard, redactor."""

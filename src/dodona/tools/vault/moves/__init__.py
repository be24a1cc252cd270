"""Moving notes, so that links to them stay right."""

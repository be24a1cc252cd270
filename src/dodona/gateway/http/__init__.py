"""Building blocks of HTTP operations: requests, responses, schemas."""

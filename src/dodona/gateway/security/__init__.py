"""Authentication, host checks, rate limits and quotas."""

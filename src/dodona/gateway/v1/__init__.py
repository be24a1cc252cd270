"""OpenAI-compatible chat completions: requests and responses."""

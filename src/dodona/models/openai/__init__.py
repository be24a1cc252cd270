"""OpenAI's chat completions API, and servers that are compatible with it."""

"""OpenAI's chat completions: what comes in, what goes out, and how errors are told there."""

"""What a model is shown: history, prompts, summaries and where texts come from."""

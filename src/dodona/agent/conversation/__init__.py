"""The input of the model: history, prompts, summaries, and the provenance of texts."""

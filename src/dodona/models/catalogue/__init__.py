"""Known models: context sizes and limits."""

"""Known models: context sizes, limits and prices."""

"""Who is calling, and how much they may do."""

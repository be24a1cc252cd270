"""What a run has at hand while it goes on."""

"""Runs: submitting, queueing, journalling and finishing them."""

"""Threads, notices, approvals and the state of packs."""

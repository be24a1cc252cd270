"""Notices, approvals and the state of rule packs."""

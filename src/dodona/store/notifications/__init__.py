"""Notices and approvals."""

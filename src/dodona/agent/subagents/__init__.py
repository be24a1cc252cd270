"""Subagents: tasks that one agent delegates to another."""

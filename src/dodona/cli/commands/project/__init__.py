"""Commands that manage a project, its notes, trees, rules and settings."""

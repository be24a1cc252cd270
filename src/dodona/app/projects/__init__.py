"""What each project has: notes, code and access to the web."""

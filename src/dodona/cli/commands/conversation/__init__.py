"""Commands that ask questions and show conversations and runs."""

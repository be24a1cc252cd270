"""Extensions: loading them from files and packages, and the registry of an app."""

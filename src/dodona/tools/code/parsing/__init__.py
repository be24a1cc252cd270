"""Reading source files: grammars, definitions and references."""

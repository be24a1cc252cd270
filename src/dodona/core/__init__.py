"""The types that every layer may use: errors, events, messages, ports. Standard library only."""

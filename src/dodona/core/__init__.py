"""What every layer may use: errors, events, ports, near misses. Standard library only."""

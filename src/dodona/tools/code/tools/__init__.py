"""The tools that models call to read code."""

"""The tools that models call to read and write notes."""

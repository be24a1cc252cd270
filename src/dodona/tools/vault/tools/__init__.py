"""Tools that let a model read and write notes."""

"""The text language of trees: parsing, checking and loading."""

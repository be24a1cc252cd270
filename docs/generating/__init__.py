"""The pages of docs/reference, each made of what a registry knows."""

"""Budgets and the usage of model calls."""

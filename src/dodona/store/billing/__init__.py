"""Budgets and what calls of models have used."""

"""Validation rules that concern more than one setting."""

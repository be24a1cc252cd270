"""Databases: connections, transactions, migration and health."""

"""Database access: connections, transactions, migration and error translation."""

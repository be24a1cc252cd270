"""The PostgreSQL server that the tests of the store use."""

from __future__ import annotations

from tests.conformance.store.conftest import postgres_server

__all__ = ["postgres_server"]

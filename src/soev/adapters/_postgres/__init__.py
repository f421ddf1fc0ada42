"""A trace store in a PostgreSQL database."""

from soev.adapters._postgres._store import PostgresTraceStore

__all__ = ["PostgresTraceStore"]

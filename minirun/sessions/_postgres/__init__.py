"""Sessions in a Postgres database; see `_service`."""

"""Sessions in a store of one's own; see `_service`."""

"""Taking over the sessions that ADK has stored."""

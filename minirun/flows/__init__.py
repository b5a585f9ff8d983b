"""What a turn with a model is, without doing it: pure functions and tables."""

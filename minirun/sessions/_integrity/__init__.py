"""Checks whether a store or an imported history is whole."""

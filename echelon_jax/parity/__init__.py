"""Comparison with the original: its recorded games, and the plain reference on random states."""

"""Comparison with recorded games of the original."""

"""Policies: networks, action heads, distributions, features and normalisers. Nothing here trains."""

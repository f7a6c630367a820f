"""Evaluation games: paired matches, intervals, behaviour counts and records."""

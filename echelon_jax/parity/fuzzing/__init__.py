"""Comparison of the JAX simulator with the plain reference on random states."""

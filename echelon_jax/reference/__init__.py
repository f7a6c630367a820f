"""The game in plain numpy, without JAX: one mech at a time, written to be read. It is the oracle of the tests.

Comments cite docs/spec by page and section. Q or E with a number is a quirk of the original, which docs/spec/README.md
lists.
"""

"""The plain numpy twin of the simulator and environment: one mech at a time, written to be read; no JAX anywhere.

Comments cite docs/spec by page and section. Q or E with a number is a quirk of the original, which docs/spec/README.md
lists.
"""

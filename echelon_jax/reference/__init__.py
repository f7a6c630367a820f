"""The plain numpy twin of the simulator and environment: one mech at a time, written to be read; no JAX anywhere.

Section numbers in the comments are those of the game's rules: "sim §n" the simulation core, "env §n" the environment
layer; Qn and En are their quirks.
"""

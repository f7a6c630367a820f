"""Maps: the generator in numpy, seed for seed the original's, and the bank of worlds. No JAX in here."""

"""The simulation as one native call: the same rules as `echelon_jax.sim`, written as plain loops over the mechs of an arena."""

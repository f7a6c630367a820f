"""The modern interface in the plain reference, mech by mech."""

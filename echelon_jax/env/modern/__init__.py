"""The modern interface: observation, actions and reward made to be learnt from."""

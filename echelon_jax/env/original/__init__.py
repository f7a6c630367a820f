"""The original's interface: its observation, actions and reward, to the letter."""

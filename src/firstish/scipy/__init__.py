"""The door for `scipy.optimize.minimize`."""

"""A small run as a user types it."""

import sys

METHODS = ["cgmr", "adam", "lbfgs"]
RUN = [sys.executable, "-m", "firstish", "run", "digits-logistic", "--subset", "150"]

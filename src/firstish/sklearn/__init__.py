"""Estimators for scikit-learn whose fits set their own step; `import firstish` does not load them.

scikit-learn's names inside are absolute imports: this package is `firstish.sklearn`, and nothing
of it is found under `sklearn`.
"""

from firstish.sklearn.logistic import ScaledLogisticRegression
from firstish.sklearn.ridge import ScaledRidge

__all__ = ["ScaledLogisticRegression", "ScaledRidge"]

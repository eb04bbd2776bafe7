"""Linear estimators for scikit-learn; `import firstish` does not import them."""

from firstish.sklearn.logistic import ScaledLogisticRegression
from firstish.sklearn.ridge import ScaledRidge

__all__ = ["ScaledLogisticRegression", "ScaledRidge"]

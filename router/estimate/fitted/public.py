"""What `router.estimate` offers for use without a gateway."""

from router.estimate.fitted.estimator import Estimator
from router.estimate.fitted.fit import fit
from router.estimate.fitted.prediction import Prediction

__all__ = ["Estimator", "Prediction", "fit"]

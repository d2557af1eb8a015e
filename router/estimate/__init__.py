"""Step 4: what each target would do with a request, and the one price function. The names are the offline estimator."""

from router.estimate.estimator import Estimator, Prediction, fit

__all__ = ["Estimator", "Prediction", "fit"]

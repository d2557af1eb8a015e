"""Step 4, estimate: what each target would do with a request, and the price function. Exports the offline estimator."""

from router.estimate.estimator import Estimator, Prediction, fit

__all__ = ["Estimator", "Prediction", "fit"]

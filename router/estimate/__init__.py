"""Step 4: what each target would do with a request, and the one price function.

`fit`, `Estimator` and `Prediction` are the offline estimator, read when first asked for: a gateway never needs them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.estimate.estimator import Estimator, Prediction, fit

__all__ = ["Estimator", "Prediction", "fit"]


def __getattr__(name: str) -> object:
    """Of the names in `__all__`, when first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from router.estimate import estimator

    return getattr(estimator, name)

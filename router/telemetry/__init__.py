"""What is counted while requests are served, for `/metrics`."""

from router.telemetry.page import of_budgets, of_engines, page
from router.telemetry.shapes import Values, counters, together
from router.telemetry.telemetry import Telemetry

__all__ = ["Telemetry", "Values", "counters", "of_budgets", "of_engines", "page", "together"]

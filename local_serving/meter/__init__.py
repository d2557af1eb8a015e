"""What local engines did and what a token of them costs, from their loads: pure, but for the meters of GPUs."""

from local_serving.meter.account import Meter, Spent
from local_serving.meter.metered import Machine, Metered, machine
from local_serving.meter.rates import Rates, Window

__all__ = ["Machine", "Meter", "Metered", "Rates", "Spent", "Window", "machine"]

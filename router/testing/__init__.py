"""For tests of lowpass, ours and its users': a gateway, an upstream and the command line inside the test's process."""

from router.testing.cli import Done, lowpass
from router.testing.client import Client, Reply, until
from router.testing.gateway import Gateway, Stream, serving

__all__ = ["Client", "Done", "Gateway", "Reply", "Stream", "lowpass", "serving", "until"]

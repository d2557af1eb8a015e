"""See `router.worth`."""

from router.worth import *  # noqa: F403

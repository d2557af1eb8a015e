"""`/dashboard`: server-rendered pages, without scripts and without a request to anywhere else."""

from router.api.dashboard.routes import routes
from router.api.dashboard.site import Site

__all__ = ["Site", "routes"]

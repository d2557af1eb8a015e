"""`/dashboard`: server-rendered pages, without scripts and without a request to anywhere else."""

from router.api.dashboard.pages import Dashboard
from router.api.dashboard.routes import routes

__all__ = ["Dashboard", "routes"]

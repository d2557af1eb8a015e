"""Policy files → one frozen Config; every mistake with its place and its remedy."""

from router.config.check import Watcher, engines_needed, load, load_text, problems
from router.config.policy import Catalog, Config, Route, Sensitivity

__all__ = ["Catalog", "Config", "Route", "Sensitivity", "Watcher", "engines_needed", "load", "load_text", "problems"]

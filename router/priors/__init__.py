"""What is known before anything was observed here: a fitted artefact, and how it reads requests and cards."""

from router.priors.priors import Numbers, Priors, PriorsError, load

__all__ = ["Numbers", "Priors", "PriorsError", "load"]

"""The one frozen value that a policy file becomes."""

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct

from router.budget.budget import Budget
from router.budget.loops.loops import Loops
from router.config.policy import Sensitivity
from router.decide.experiment import Exploration
from router.decide.strategies import Strategy
from router.outcomes.judge.policy import Judge
from router.outcomes.verifiers import Verifier
from router.types.stakes import NO_STAKES, Stakes
from router.types.target import Licence, Model, Provider, Target


class Catalog(Protocol):
    """What the config needs to know of models and providers. A model's id starts with its provider's, or `local`."""

    @property
    def providers(self) -> Mapping[str, Provider]: ...
    @property
    def licences(self) -> Mapping[str, Licence]: ...
    @property
    def models(self) -> Mapping[str, tuple[Model, str]]:
        """Model id → the card, and the id of the provider that serves it."""
        ...


class Route(Struct, frozen=True):
    name: str
    strategy: Strategy
    stakes: Stakes = NO_STAKES
    exploration: Exploration = Exploration()
    verifiers: tuple[Verifier, ...] = ()
    judge: Judge | None = None


class Config(Struct, frozen=True, kw_only=True):
    """`hash`: the first 16 hex digits of the file's SHA-256. Targets and routes keep the file's order."""

    path: str
    hash: str
    targets: Mapping[str, Target]
    routes: Mapping[str, Route]
    sensitivity: Sensitivity
    budgets: tuple[Budget, ...]
    budget_status: Literal[402, 429]
    loops: Loops = Loops()

"""What the dashboard is told by whoever runs it."""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from router.api.auth import Keyring
from router.config import Catalog, Config
from router.ledger.ledger import Ledger
from router.report.report import Report
from router.types.clock import now_ms
from router.types.secret import Secret


class Site(Struct, frozen=True, kw_only=True):
    """`secret` signs sign-ins. `health` names the state of every target that is not plainly healthy, `budgets` makes
    the report of that name, `in_flight` counts requests in progress in this process, `catalog` reads what policies may
    name; `clock` is Unix time in ms."""

    ledger: Ledger
    keyring: Keyring
    secret: Secret
    policy: Callable[[], Config]
    health: Callable[[], Mapping[str, str]]
    engines: Callable[[], object]
    budgets: Callable[[], Awaitable[Report]]
    in_flight: Callable[[], int]
    catalog: Callable[[], Catalog]
    clock: Callable[[], int] = now_ms

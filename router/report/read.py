"""A report by its name, read from the ledger. The connection can't write, so a report never locks the gateway."""

from router.errors import ClientError
from router.ledger.ledger import Ledger
from router.report.egress import egress
from router.report.incidents import incidents
from router.report.moment import moment
from router.report.report import Report
from router.report.spend import spend
from router.types.clock import now_ms

NAMES = ("spend", "budgets", "egress", "incidents")


def read(ledger: Ledger, name: str, *, by: str = "target", since: str = "", until: str = "") -> Report:
    """All but `budgets`, which is read from the budgets' store (`router.report.budgets`).

    Raises `ClientError`: 404 for an unknown name, 400 for a value that makes no sense, each with its `param`.
    """
    now = now_ms()
    since_ms, until_ms = moment("since", since, now), moment("until", until, now)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise _wrong("since", f"since ({since}) is not before until ({until}).")
    if name not in NAMES or name == "budgets":
        message = f"There is no report '{name}'. Known: {', '.join(NAMES)}."
        raise ClientError(404, "not_found", message, param="name")
    with ledger.reading() as connection:
        if name == "incidents":
            return incidents(connection, since_ms, until_ms)
        if name == "egress":
            connection.execute("BEGIN")
            return egress(connection, since_ms, until_ms)
        try:
            return spend(connection, by, since_ms, until_ms)
        except ValueError as error:
            raise _wrong("by", str(error)) from None


def _wrong(param: str, message: str) -> ClientError:
    return ClientError(400, "invalid_request_error", message, param=param)

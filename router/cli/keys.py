"""`lowpass keys`: creates, lists, rotates and revokes API keys."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from router.cli.app import (
    JsonOption,
    PolicyOption,
    amount_of,
    echo_json,
    fail,
    failing,
    settings_of,
    show_rows,
    writing,
)
from router.ledger import keys as store
from router.ledger.keys import COMMAND_LINE, Key
from router.report.budgets import spent_in_window
from router.types.clock import now_ms
from router.types.price import nano_from_usd, usd_text
from router.types.request import KeyTerms, seconds

app = typer.Typer()
MANY = "May be given several times."
NameArgument = Annotated[str, typer.Argument(help="Name or id.")]


@app.command("create")
def keys_create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Who or what will use it.")],
    routes: Annotated[list[str] | None, typer.Option("--route", help=MANY)] = None,
    targets: Annotated[list[str] | None, typer.Option("--target", help=MANY)] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help=MANY)] = None,
    new_tag: Annotated[list[str] | None, typer.Option(help="A tag that no budget of the policy names.")] = None,
    scopes: Annotated[list[str] | None, typer.Option("--scope", help="`reports`, `feedback` or `admin`.")] = None,
    budget: Annotated[str, typer.Option(help="A budget of the policy that binds it.")] = "",
    team: Annotated[str, typer.Option(help="The team whose budgets bind it.")] = "",
    organisation: Annotated[str, typer.Option(help="Likewise.")] = "",
    min_class: Annotated[str, typer.Option(help="A class that binds everything it sends.")] = "",
    limit_usd: Annotated[str | None, typer.Option(help="What it may spend in a window.")] = None,
    window: Annotated[str, typer.Option(help="hour, day, week, month, year or lifetime.")] = "month",
    rpm: Annotated[int | None, typer.Option(help="Requests a minute.")] = None,
    tpm: Annotated[int | None, typer.Option(help="Tokens a minute, input and output.")] = None,
    parallel: Annotated[int | None, typer.Option(help="Requests in progress.")] = None,
    expires: Annotated[str | None, typer.Option(help="A length of time such as 90d, or a date.")] = None,
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key. Without --route and --target it may use everything."""
    fields = {field: context.params[field] for field in KeyTerms.__struct_fields__}
    given = {field: value for field, value in fields.items() if value is not None}
    given["tags"] = (*(tags or ()), *(new_tag or ()))
    if limit_usd is not None:
        given["limit_usd"] = amount_of("--limit-usd", limit_usd)
    try:
        terms = msgspec.convert(given, KeyTerms)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        fail(f"--{path.rstrip('`').replace('_', '-')}: {message}")
    if any((routes, targets, tags, budget, min_class)):
        from router.config.check import check_terms  # imports the policy's schema
        from router.config.load import load_policy

        file = settings_of(policy).policy
        with failing(ValueError, after="; --policy or LOWPASS_POLICY names another one"):
            check_terms(terms, load_policy(file), new_tag or ())
    with writing() as connection, failing(ValueError):
        key, secret = store.create(connection, terms, COMMAND_LINE)
    _show_secret(key, secret, as_json)


@app.command("list")
def keys_list(as_json: JsonOption = False) -> None:
    """List all keys, without secrets: what each may do, what it spent in its window, and when it was used last."""
    with writing() as connection:
        every = store.every(connection)
        spent = [spent_in_window(connection, key) for key in every]
    if as_json:
        from router.api.admin import as_json as row

        echo_json([row(key, nano) for key, nano in zip(every, spent, strict=True)])
    else:
        show_rows("name:label state team scopes may_use limits spent last_used expires", map(_row, every, spent))


@app.command("rotate")
def keys_rotate(
    name: NameArgument,
    grace: Annotated[
        str, typer.Option(help="How long the secret before stays valid, such as 24h; 0s: all before end.")
    ] = "24h",
    as_json: JsonOption = False,
) -> None:
    """Give a key a new secret; its permissions and spending stay."""
    with failing(ValueError, about="--grace: "):
        grace_ms = 0 if grace in ("0", "0s") else seconds(grace) * 1000
    with writing() as connection, failing(LookupError):
        key, secret = store.rotate(connection, name, grace_ms, COMMAND_LINE)
    _show_secret(key, secret, as_json)


@app.command("revoke")
def keys_revoke(name: NameArgument) -> None:
    """Revoke a key; a running gateway notices within a second."""
    with writing() as connection, failing(LookupError):
        key = store.revoke(connection, name, COMMAND_LINE)
    typer.echo(f"revoked '{key.terms.name}' ({key.id})")


def _row(key: Key, nano: Sequence[int]) -> tuple[str, ...]:
    terms = key.terms
    rates = (("rpm", terms.rpm), ("tpm", terms.tpm), ("at once", terms.parallel))
    limits = [f"{limit:,} {name}" for name, limit in rates if limit is not None]
    if terms.limit_usd is not None:
        amount = f"${usd_text(nano_from_usd(terms.limit_usd))}"
        limits.insert(0, amount if terms.window == "lifetime" else f"{amount} a {terms.window}")
    may_use = ", ".join((*terms.routes, *terms.targets)) or "everything"
    return (
        terms.name,
        "revoked" if key.revoked_ms is not None else "in force" if key.valid_at(now_ms()) else "expired",
        " of ".join(filter(None, (terms.team, terms.organisation))) or "-",
        ", ".join(terms.scopes) or "-",
        f"{may_use}, at least {terms.min_class}" if terms.min_class else may_use,
        ", ".join(limits) or "-",
        f"${usd_text(nano[0])}" if nano else "-",
        "never" if key.used_ms is None else _minute(key.used_ms),
        "-" if key.expires_ms is None else _minute(key.expires_ms),
    )


def _minute(moment_ms: int) -> str:
    return f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%Y-%m-%d %H:%M}"


def _show_secret(key: Key, secret: str, as_json: bool) -> None:
    if as_json:
        echo_json({"id": key.id, "name": key.terms.name, "key": secret})
        return
    typer.echo(secret)
    typer.echo(f"This is the key of '{key.terms.name}'. It is stored as a hash and will not be shown again.", err=True)

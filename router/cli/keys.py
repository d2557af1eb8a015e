"""`lowpass keys`: make, list and revoke."""

from typing import Annotated, Any

import typer

from router.cli.app import JsonOption, keys
from router.terminal import echo_json, fail, writing

ManyOption = Annotated[list[str] | None, typer.Option(help="May be given several times.")]


@keys.command("create")
def keys_create(
    name: Annotated[str, typer.Argument(help="Who or what will use it.")],
    route: ManyOption = None,
    target: ManyOption = None,
    tag: ManyOption = None,
    scope: Annotated[list[str] | None, typer.Option(help="`reports` opens reports and the dashboard.")] = None,
    budget: Annotated[str, typer.Option(help="A budget of the policy that binds it.")] = "",
    team: Annotated[str, typer.Option(help="The team whose budgets bind it.")] = "",
    organisation: Annotated[str, typer.Option(help="Likewise.")] = "",
    min_class: Annotated[str, typer.Option(help="A class that binds everything it sends.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Make a key. Without --route and --target it may use everything."""
    from router.ledger import keys as store

    given: dict[str, Any] = {"routes": route or (), "targets": target or (), "tags": tag or (), "scopes": scope or ()}
    given |= {"budget": budget, "team": team, "organisation": organisation, "min_class": min_class}
    with writing() as connection:
        try:
            key, secret = store.create(connection, name, **given)
        except ValueError as error:
            fail(str(error))
    if as_json:
        echo_json({"id": key.id, "name": key.name, "key": secret})
    else:
        typer.echo(secret)
        typer.echo(f"This is the key of '{key.name}'. It is stored as a hash and will not be shown again.", err=True)


@keys.command("list")
def keys_list(as_json: JsonOption = False) -> None:
    """Every key, without its secret."""
    from router.ledger import keys as store

    with writing() as connection:
        found = store.every(connection)
    if as_json:
        echo_json(found)
        return
    for key in found:
        state = "revoked" if key.revoked_ms is not None else "in force"
        may = ", ".join((*key.routes, *key.targets)) or "everything"
        whose = " of ".join(filter(None, (key.team, key.organisation))) or "-"
        rest = f"scopes {', '.join(key.scopes) or '-'}  team {whose}  at least {key.min_class or '-'}"
        typer.echo(f"{key.id}  {key.name:<20}  {state}  may use {may}  {rest}")


@keys.command("revoke")
def keys_revoke(name: Annotated[str, typer.Argument(help="Name or id.")]) -> None:
    """End a key; a running gateway notices within a second."""
    from router.ledger import keys as store

    with writing() as connection:
        try:
            key = store.revoke(connection, name)
        except LookupError as error:
            fail(str(error.args[0]))
    typer.echo(f"revoked '{key.name}' ({key.id})")

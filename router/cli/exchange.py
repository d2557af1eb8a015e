"""`lowpass export` and `lowpass import`: the ledger for other systems, and policies of other gateways."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from router.cli.app import PolicyOption, SinceOption, UntilOption, fail, failing, ledger_there, settings_of
from router.export.focus import ParquetMissing, dataset, write_csv, write_parquet
from router.ledger.facts import RowsExpired
from router.report.query import Parameters, request_of
from router.report.report import Definition
from router.types.clock import iso, now_ms

export, imports = typer.Typer(), typer.Typer()


@export.command()
def focus(
    out: Annotated[Path, typer.Option(help="The file to write; replaced when the new one is complete.")],
    format: Annotated[Literal["parquet", "csv"] | None, typer.Option(help="Else by the file's ending.")] = None,
    since: SinceOption = "",
    until: UntilOption = "",
    policy: PolicyOption = None,
) -> None:
    """Export cost and usage by hour, as FOCUS 1.4 defines it: whole hours, in UTC."""
    from router.cli.offline import directory  # imports the web framework

    settings = settings_of(policy)
    with failing(ParquetMissing), ledger_there(settings) as ledger:
        window = request_of(Definition(name="focus"), Parameters(since=since, until=until), now_ms())
        write = write_csv if (format or out.suffix[1:]) == "csv" else write_parquet
        known = directory(settings.policy, ledger)
        try:
            with ledger.reading() as connection:
                count = write(out, dataset(connection, known, window.since_ms, window.until_ms))
        except RowsExpired as error:
            fail(f"requests before {iso(error.before_ms)} have expired: say --since {iso(error.before_ms)}")
        except OSError as error:
            fail(f"{out} can't be written ({error.strerror}): name a file in a folder that has room")
    typer.echo(f"{out}: {count} records")


@imports.command("litellm")
def import_litellm(
    config: Annotated[Path, typer.Argument(help="LiteLLM's config.yaml.")],
    out: Annotated[Path | None, typer.Option(help="The policy file to write; else standard output.")] = None,
) -> None:
    """Write a policy that does what a LiteLLM configuration does, and list what has no counterpart."""
    import yaml

    from router.config.litellm import policy_of  # imports the policy's schema

    if out is not None and out.exists():
        fail(f"{out} exists: name another file, or move it away")
    with failing():
        policy, problems = policy_of(config)
    head = f"# Made of {config.name} by `lowpass import litellm`; `lowpass check` says what is missing.\n"
    text = head + yaml.safe_dump(policy, sort_keys=False, width=120, allow_unicode=True)
    typer.echo(text, nl=False) if out is None else out.write_text(text, "utf-8")
    for problem in problems:
        typer.echo(str(problem), err=True)
    typer.echo(f"{len(policy['targets'])} targets; {len(problems)} places have no counterpart or need a look", err=True)

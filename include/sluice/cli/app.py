"""Which commands there are; each imports what it needs when it runs, so that `sluice plan` starts at once."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from sluice.cli import engine, installation, overview, project, quality, runs, serve
from sluice.cli.answers import Answering, StreamFirst
from sluice.cli.printing import print_error
from sluice.errors import SluiceError
from sluice.exit_code import leave_with, lost_output

app = typer.Typer(
    name="sluice",
    help="Streaming semantics on a batch schedule: plan in Python, run in Spark, audit, publish.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=Answering,
    rich_markup_mode=None,
)
app.command("init")(project.init_project)
app.command("list")(overview.list_streams)
app.command("check")(project.check)
app.command("plan")(runs.plan)
app.command("run")(runs.run)
app.command("backfill")(runs.backfill)
app.command("inspect")(overview.inspect)
app.command("runs")(overview.runs)
app.command("lag")(overview.lag)
app.command("explain")(engine.explain)
app.command("state")(engine.state)
# -1 is a batch there, and no option.
app.command("diff", context_settings={"ignore_unknown_options": True})(engine.diff)
app.command("serve")(serve.serve)

quality_app = typer.Typer(
    help="Verdicts and checks of a stream's last runs; what to do about those that failed.",
    cls=StreamFirst,
    no_args_is_help=True,
    rich_markup_mode=None,
)
quality_app.command("show")(quality.show_quality)
quality_app.command("audit")(quality.audit_quality)
quality_app.command("release")(quality.release_quality)
quality_app.command("suggest")(quality.suggest_quality)
app.add_typer(quality_app, name="quality")

jars_app = typer.Typer(
    help="The jars that Spark needs beside its own.", cls=Answering, no_args_is_help=True, rich_markup_mode=None
)
jars_app.command("fetch")(installation.fetch_jars)
jars_app.command("list")(installation.list_jars)
app.add_typer(jars_app, name="jars")

profile_app = typer.Typer(
    help="The launch profile, with which Spark starts in half the time.",
    cls=Answering,
    no_args_is_help=True,
    rich_markup_mode=None,
)
profile_app.command("build")(installation.build_launch_profile)
profile_app.command("show")(installation.show_launch_profile)
app.add_typer(profile_app, name="profile")


def _print_version(is_wanted: bool) -> None:  # noqa: FBT001 - typer calls it
    if is_wanted:
        print(f"sluice {version('sluice-streaming')}")
        raise typer.Exit


@app.callback()
def common(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Take what concerns no command."""


def main() -> None:
    """Run the command line; ends the process with the code that the error has."""
    leave_with(_run)


def _run() -> int:
    code = _exit_code_of_command()
    if (lost := lost_output()) is None:
        return code
    remedy = "make room, or send it elsewhere; whatever the command had to do is done"
    print_error(SluiceError(f"the output could not be written: {lost}", where="standard output", remedy=remedy))
    return code or SluiceError.exit_code


def _exit_code_of_command() -> int:
    try:
        app()
    except SluiceError as exc:
        print_error(exc)
        return exc.exit_code
    except SystemExit as exc:
        if isinstance(exc.code, str):
            raise
        return exc.code or 0
    return 0

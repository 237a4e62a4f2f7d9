"""`sluice serve`: keeps a Spark warm for the project's runs."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sluice.cli.options import AsJson, ProjectFolder
from sluice.cli.printing import print_json
from sluice.extras import check_extra

if TYPE_CHECKING:
    from types import FrameType

    from sluice.project import Project
    from sluice.spark.served import ServerFile


def serve(
    idle: Annotated[str, typer.Option(metavar="15m", help="End by itself when no run came for so long.")] = "15m",
    status: Annotated[bool, typer.Option("--status", help="Say whether a server runs, and start none.")] = False,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Keep a Spark warm for this project's runs, until Ctrl-C; they take it with `master = "serve"`."""
    check_extra("spark", "`sluice serve`")
    from sluice.errors import DeclarationError
    from sluice.project import find_project
    from sluice.spark.served import NotServed, is_served
    from sluice.spark.serving import server_there, serving
    from sluice.times import duration_ms

    loaded = find_project(project)
    if status:
        _print_status(loaded, as_json=as_json)
        return
    idle_ms = duration_ms(idle, "--idle", "command line")
    if idle_ms == 0:
        raise DeclarationError("`--idle` is nothing", where="command line", remedy="give some time, such as 15m")
    try:
        print(f"runs already: {_told(server_there(loaded))}")
        return
    except NotServed:
        pass
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        # Else `nohup` has started it.
        signal.signal(signal.SIGHUP, _interrupt)
    if not is_served(loaded):
        words = '`master = "serve"` in [spark], or SLUICE_SPARK_MASTER=serve'
        print(f"no run of this project takes it yet: that needs {words}", file=sys.stderr)
    try:
        with serving(loaded, idle_ms) as served:
            print(f"serving {loaded.name}: {_told(served.file)}", flush=True)
            print(f"ended: {served.wait()}", file=sys.stderr)
    except KeyboardInterrupt:
        print("ended", file=sys.stderr)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _print_status(project: Project, *, as_json: bool) -> None:
    """Exits with 1 where no run of the project would find a server."""
    from sluice.errors import RunError
    from sluice.spark.served import NotServed
    from sluice.spark.serving import server_there

    try:
        server = server_there(project)
    except (NotServed, RunError) as exc:
        reason = exc.problem if isinstance(exc, RunError) else str(exc)
        if as_json:
            print_json({"usable": False, "reason": reason})
        else:
            print(reason)
        raise typer.Exit(1) from exc
    if as_json:
        print_json(
            {
                "usable": True,
                "reason": None,
                "pid": server.watcher.pid,
                "jvm_pid": server.jvm.pid,
                "port": server.port,
                "spark": server.spark,
                "idle": server.idle,
                "started_at": server.started_at.isoformat(),
            }
        )
    else:
        print(f"runs: {_told(server)}")


def _told(server: ServerFile) -> str:
    return (
        f"process {server.watcher.pid}, Spark {server.spark} on localhost:{server.port},"
        f" ends when no run came for {server.idle}"
    )

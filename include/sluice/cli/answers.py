"""What people type that other tools call so, and what to type here."""

from __future__ import annotations

import difflib
from typing import Any

from typer.core import TyperGroup

_COMMANDS_ELSEWHERE = {
    **dict.fromkeys(["start", "execute", "trigger", "submit"], "`sluice run STREAM` runs a stream once"),
    **dict.fromkeys(["build", "apply"], "`sluice run STREAM` runs a stream once"),
    **dict.fromkeys(
        ["explain", "compile", "dry-run", "dryrun", "diff"], "`sluice plan STREAM` says what a run would do"
    ),
    **dict.fromkeys(["test", "validate", "debug", "parse"], "`sluice check` checks every declaration"),
    **dict.fromkeys(["ls", "streams", "show"], "`sluice list` lists the streams"),
    **dict.fromkeys(["history", "log", "logs", "status"], "`sluice runs STREAM` lists the runs of a stream"),
    **dict.fromkeys(["checkpoint", "describe"], "`sluice inspect STREAM` shows a checkpoint"),
    **dict.fromkeys(["release", "audit", "suggest"], "it is a command of `sluice quality`"),
    **dict.fromkeys(["new", "create"], "`sluice init DIR` makes a project"),
    "schedule": "a DAG says when its streams run: `stream_dag(...)`",
}
"""What is typed as a command, and what to type."""
_OPTIONS_ELSEWHERE = {
    **dict.fromkeys(["--stream", "--select", "--model", "--name", "-s", "-m"], "name the stream without an option"),
    **dict.fromkeys(["--full-refresh", "--reset"], "a backfill recomputes an interval: `sluice backfill STREAM`"),
    **dict.fromkeys(["--from-date", "--start-date", "--event-time-start", "--from"], "write it as --start"),
    **dict.fromkeys(["--to-date", "--end-date", "--event-time-end", "--to"], "write it as --end"),
    **dict.fromkeys(["--trigger", "--once", "--available-now"], "leave it out: a run takes what is there and stops"),
    **dict.fromkeys(["--project-dir", "--profiles-dir"], "write it as --project"),
    **dict.fromkeys(["--dry-run", "-n"], "`sluice plan STREAM` says what a run would do"),
    **dict.fromkeys(["--batches", "--max-batch"], "write it as --max-batches"),
    **dict.fromkeys(["--master", "--conf"], "write it into `sluice.toml`, under [spark]"),
    "--checkpoint-location": "write it as --checkpoint",
    "--output": "write it as --json, and send the output where you want it",
}
"""What is typed as an option, and what to do."""


class Answering(TyperGroup):
    """A group that answers the words of other tools with its own."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that was typed."""
        answer = _COMMANDS_ELSEWHERE.get(args[0]) if args[0] not in self.commands else None
        if answer is not None:
            ctx.fail(f"no command `{args[0]}`: {answer}")
        name, command, rest = super().resolve_command(ctx, args)
        known = {option for parameter in getattr(command, "params", ()) for option in parameter.opts}
        for word in rest:
            option = word.partition("=")[0]
            if option in _OPTIONS_ELSEWHERE and option not in known and "commands" not in vars(command):
                ctx.fail(f"no option `{option}` of `{name}`: {_OPTIONS_ELSEWHERE[option]}")
        return name, command, rest


class StreamFirst(Answering):
    """A group whose first word may be a stream: then it is shown."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `show` in front of what is none of the group's own words."""
        if args and args[0] not in {*self.commands, "--help"}:
            if len(args) > 1 and not any(word.startswith("-") for word in args[:2]):
                # Only one stream can be shown: the first of two words is a command, misspelt.
                near = difflib.get_close_matches(args[0], self.commands, n=1)
                meant = f"did you mean `{near[0]}`?" if near else f"commands are: {', '.join(self.commands)}"
                ctx.fail(f"no command `{args[0]}`: {meant}")
            args = ["show", *args]
        return super().parse_args(ctx, args)

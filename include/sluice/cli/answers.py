"""What people type that other tools call so, and what to type here."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from typer.core import TyperGroup

_RUN = "`sluice run STREAM` runs a stream once"
_GOES_ON = "`sluice run STREAM` goes on where the last run ended"
_ANEW = (
    "a backfill recomputes an interval: `sluice backfill STREAM --start TIME --end TIME`; for a fresh start, declare"
    " the stream under another name, with a sink of its own"
)
_AIRFLOW = "it is a command of Airflow: type `airflow` in front of it"


def _each(names: str, answer: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), answer)


COMMANDS: Mapping[str, Mapping[str, str]] = {
    "sluice": {
        **_each("start execute trigger submit build apply once", _RUN),
        **_each("compile dry-run dryrun preview", "`sluice plan STREAM` says what a run would do"),
        **_each("test validate debug parse lint", "`sluice check` checks every declaration"),
        **_each("ls streams show", "`sluice list` lists the streams"),
        **_each("history log logs status", "`sluice runs STREAM` lists the runs of a stream"),
        **_each("checkpoint checkpoints describe offsets", "`sluice inspect STREAM` shows a checkpoint"),
        **_each("freshness source waiting", "`sluice lag STREAM` shows what waits in every source"),
        **_each("release audit suggest", "it is a command of `sluice quality`"),
        **_each("airflow spark-submit dbt gx", "it is a command of its own: type it without `sluice`"),
        **_each("new create scaffold", "`sluice init DIR` makes a project"),
        **_each("schedule", "a DAG says when its streams run: `stream_dag(...)`"),
        **_each("stop cancel kill abort pause",
                "end its process by SIGTERM: a run stops after the batch under way"),
        **_each("retry rerun resume restart continue clear", _GOES_ON),
        **_each("reset delete drop remove rm destroy rewind refresh truncate", _ANEW),
        **_each("clean cleanup gc", "leave it out: nothing has to be cleaned before a run"),
        **_each("dags tasks scheduler webserver standalone triggerer api-server db connections variables", _AIRFLOW),
        **_each("pools users assets datasets", _AIRFLOW),
        **_each("seed", "put the files where a source reads, and run the stream: `sluice run STREAM`"),
        **_each("snapshot clone", "a Delta table keeps its versions: `VERSION AS OF` reads one as it was"),
        **_each("deps install packages", "`sluice jars fetch` fetches what Spark needs beside its own"),
        **_each("docs lineage graph ui web",
                "the pages in Airflow show the streams and what reads which: Browse > Streams"),
        **_each("vacuum optimize compact zorder maintain", "Delta does it, in Spark SQL: `OPTIMIZE` and `VACUUM`"),
        **_each("version", "`sluice --version` prints it"),
        **_each("help", "`sluice --help` lists the commands"),
    },
    "quality": _each("run check test validate",
                     "a run judges what it writes, and `sluice quality audit STREAM` the table as it stands")
    | _each("hold block", "a suite's policy `fail` does that"),
    "jars": _each("install download get update pull", "`sluice jars fetch` fetches them")
    | _each("ls show", "`sluice jars list` lists them"),
    "profile": _each("create make new update", "`sluice profile build` builds it")
    | _each("list ls status", "`sluice profile show` shows it"),
}  # fmt: skip
"""By group, what is typed as a command, and what to type."""

_INTERVAL = "an interval is recomputed by a backfill: `sluice backfill STREAM --start TIME --end TIME`"
_SPARK = "write it into `sluice.toml`, under [spark]"
_SPARK_CONF = "write it into `sluice.toml`, under [spark.conf]"
_VARIABLE = "write ${NAME} into `sluice.toml` or into a path, and set it in the environment"
_TARGET = (
    "name another project by --project, or say by SLUICE_HOME and SLUICE_SPARK_MASTER in the environment where this one"
    " keeps its records, and which Spark it takes"
)
_NAME = "name the stream without an option"

Answers = Sequence[tuple[str, str]]
"""An option of the command, and what to say where it has that one; `""` is for all others."""


def _options(names: str, *answers: tuple[str, str]) -> dict[str, Answers]:
    return dict.fromkeys(names.split(), answers)


OPTIONS: Mapping[str, Answers] = {
    **_options("--stream --streams --select --model --models --name -m",
               ("--tag", "name the streams without an option, or write it as --tag"), ("", _NAME)),
    **_options("--dag-id --dag", ("", _NAME)),
    **_options("--tags", ("--tag", "write it as --tag"), ("", _NAME)),
    **_options("--tag", ("", "it is one of `sluice run`")),
    **_options("--full-refresh --reset --reset-dagruns", ("", _ANEW)),
    **_options("--from-date --start-date --event-time-start --from --since",
               ("--start", "write it as --start"), ("--last", "write it as --last N: the newest are listed"),
               ("", _INTERVAL)),
    **_options("--start", ("", _INTERVAL)),
    **_options("--end", ("--until", "write it as --until"), ("", _INTERVAL)),
    **_options("--until", ("--end", "write it as --end"), ("", "it is one of `sluice plan` and `sluice run`")),
    **_options("-s", ("--start", "write it as --start"), ("", _NAME)),
    **_options("--to-date --end-date --event-time-end --to --before --logical-date --execution-date -e",
               ("--end", "write it as --end"), ("--until", "write it as --until"), ("", _INTERVAL)),
    **_options("--once", ("--trigger", "write it as --trigger once")),
    **_options("--available-now", ("--trigger", "write it as --trigger available-now")),
    **_options("--processing-time", ("--trigger", "write it as --trigger processing-time=10s, with --for")),
    **_options("--continuous", ("--trigger", "write it as --trigger continuous=1s, with --for")),
    **_options("--real-time", ("--trigger", "write it as --trigger real-time, with --for")),
    **_options("--duration --run-for --timeout", ("--for", "write it as --for")),
    **_options("--trigger --for", ("", "it is one of `sluice plan` and `sluice run`")),
    **_options("--project-dir --profiles-dir --project-path --dir", ("--project", "write it as --project")),
    **_options("--dry-run", ("--run-key", "`sluice plan STREAM` says what a run would do"),
               ("--checkpoint", "leave it out: it changes nothing"),
               ("--last", "leave it out: it changes nothing")),
    **_options("-n --limit --count --tail", ("--last", "write it as --last"),
               ("--max-batches", "write it as --max-batches; `sluice plan STREAM` says what a run would do")),
    **_options("--batches --max-batch --max-files", ("--max-batches", "write it as --max-batches")),
    **_options("--master --deploy-mode", ("", _SPARK)),
    **_options("--conf --driver-memory --executor-memory --executor-cores --num-executors --packages --jars --py-files",
               ("", _SPARK_CONF)),
    **_options("--threads --parallelism", ("", 'write `master = "local[N]"` into `sluice.toml`, under [spark]')),
    **_options("--vars --var --env --params", ("", _VARIABLE)),
    **_options("--target --profile -t", ("--project", _TARGET)),
    **_options("--all -a", ("--no-spark", "leave it out: without a name, all are checked"),
               ("", "leave it out: `list` and `check` show all streams, `run` runs all, other commands are of one")),
    **_options("-v -vv --verbose --debug --log-level -q --quiet --silent",
               ("", "leave it out: progress and logs are on standard error, the answer on standard output")),
    **_options("--status --state --failed",
               ("--last", "leave it out: every run has its status; `--json` gives them to a filter")),
    **_options("--days --date --partition --ds", ("--start", "write it as --start and --end"), ("", _INTERVAL)),
    **_options("--backfill", ("", _INTERVAL)),
    **_options("--wait --async --background --detach -d", ("", "leave it out: a command ends when its work is done")),
    **_options("--exclude", ("--tag", "leave it out: name the streams, or give those that are meant a tag"),
               ("", "leave it out: a command is about one stream")),
    **_options("--force -f --yes -y", ("", "leave it out: a refusal says which decision it needs")),
    **_options("--checkpoint-location --checkpoint-dir", ("--checkpoint", "write it as --checkpoint"),
               ("", "declare it: `Stream(checkpoint=...)`")),
    **_options("-o", ("--output", "write it as --output"),
               ("--json", "write it as --json, and send the output where you want it")),
    **_options("--output --format", ("--json", "write it as --json, and send the output where you want it")),
}  # fmt: skip
"""What is typed as an option, and what to do, by what the command has."""
_WORDS = ("create", "start", "run", "list", "show", "get", "new", "trigger", "stream", "streams", "dag")
"""What is typed between a command and the stream."""


def answer_to_option(option: str, known: Collection[str]) -> str | None:
    """What to say of an option that a command does not have; None when there is no answer.

    Args:
        option: What was typed.
        known: The command's options.
    """
    if option in known:
        return None
    return next((text for needed, text in OPTIONS.get(option, ()) if not needed or needed in known), None)


class Answering(TyperGroup):
    """A group that answers the words of other tools with its own."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that was typed."""
        words = COMMANDS.get(self.name or "", COMMANDS["sluice"] if ctx.parent is None else {})
        answer = words.get(args[0]) if args[0] not in self.commands else None
        if answer is not None:
            ctx.fail(f"no command `{args[0]}`: {answer}")
        name, command, rest = super().resolve_command(ctx, args)
        if "commands" in vars(command):
            return name, command, rest
        parameters = getattr(command, "params", ())
        known = {option for parameter in parameters for option in parameter.opts}
        for word in rest:
            option = word.partition("=")[0]
            said = answer_to_option(option, known) or _of_others(option, known, ctx.find_root().command)
            if said is not None:
                ctx.fail(f"no option `{option}` of `{name}`: {said}")
        takes = [parameter.name for parameter in parameters if parameter.param_type_name == "argument"]
        if takes == ["stream"] and len(rest) > 1 and rest[0] in _WORDS and not rest[1].startswith("-"):
            ctx.fail(f"no `{rest[0]}` in `{name}`: name the stream at once, as in `sluice {name} {rest[1]}`")
        if not takes and rest and not rest[0].startswith("-"):
            ctx.fail(f"no `{rest[0]}` in `{name}`: leave it out")
        return name, command, rest


def _of_others(option: str, known: Collection[str], group: Any, path: str = "sluice") -> str | None:
    """What to say of an option that other commands have; None when none has it, or this one does."""
    if option in known or option in OPTIONS or not option.startswith("--"):
        return None
    found = [f"`{name}`" for name, options in _commands(group, path) if option in options]
    return f"it is one of {' and '.join(found)}" if found else None


def _commands(group: Any, path: str) -> Iterator[tuple[str, set[str]]]:
    """Every command below a group, as it is typed, with its options."""
    for name, command in group.commands.items():
        if "commands" in vars(command):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", {option for parameter in command.params for option in parameter.opts}


class StreamFirst(Answering):
    """A group whose first word may be a stream: then it is shown."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `show` in front of what is none of the group's own words."""
        if args and args[0] not in {*self.commands, "--help"}:
            if len(args) > 1 and not any(word.startswith("-") for word in args[:2]):
                # Only one stream can be shown: the first of two words is a command, misspelt.
                near = difflib.get_close_matches(args[0], self.commands, n=1)
                meant = f"did you mean `{near[0]}`?" if near else f"commands are: {', '.join(self.commands)}"
                meant = COMMANDS.get(self.name or "", {}).get(args[0], meant)
                ctx.fail(f"no command `{args[0]}`: {meant}")
            args = ["show", *args]
        return super().parse_args(ctx, args)

"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from sluice.cli.printing import answer_in_json

StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")]
OptionalStreamName = Annotated[str | None, typer.Argument(metavar="[STREAM]", help="The stream's name.")]
ProjectFolder = Annotated[str | None, typer.Option("--project", help="The folder of sluice.toml, or one below it.")]
AsJson = Annotated[bool, typer.Option("--json", callback=answer_in_json, help="Print one JSON document.")]
Until = Annotated[str, typer.Option(help="Take only what arrived before this time (ISO 8601, UTC).")]
ToVersion = Annotated[int | None, typer.Option(min=0, help="Delta sources: take versions up to this one.")]
MaxBatches = Annotated[int | None, typer.Option(min=1, help="The most data batches.")]
StrategyName = Annotated[str | None, typer.Option("--strategy", metavar="exact|drain", help="How batches are decided.")]
TriggerName = Annotated[
    str | None,
    typer.Option(
        "--trigger",
        metavar="available-now|once|processing-time=10s|continuous=1s|real-time",
        help="When Spark begins batches; the last three go on for the time of `--for`.",
    ),
]
RunFor = Annotated[str | None, typer.Option("--for", metavar="5m", help="How long a live trigger goes on.")]
Checkpoint = Annotated[str | None, typer.Option(help="Use this Spark checkpoint, whoever made it.")]

"""`sluice init | check`: a new project, and whether a project is right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sluice.cli.options import AsJson, OptionalStreamName, ProjectFolder
from sluice.cli.printing import error_document, print_json
from sluice.errors import DeclarationError
from sluice.extras import check_extra, is_installed


def init_project(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is empty, or new.")],
) -> None:
    """Make a project with a sample stream and data."""
    from sluice.spark import jars
    from sluice.spark.java import find_java
    from sluice.template import create_project

    if is_installed("spark") and find_java() is None:
        raise DeclarationError(
            "there is no `java`, which Spark needs; nothing was made yet",
            where="JAVA_HOME, PATH",
            remedy="install Java 17",
        )
    create_project(folder)
    for jar in jars.fetch() if is_installed("spark") else ():
        print(f"fetched {jar.file_name}", file=sys.stderr)
    print(f"Made a project in {folder}. Next:\n\n  cd {folder}\n  sluice plan visits\n  sluice run visits")


def check(
    stream: OptionalStreamName = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Check what needs no Spark; starts no JVM.")] = False,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Check every declaration, transform and query, or those of one stream; print one line per problem."""
    if not no_spark:
        check_extra("spark", "`sluice check`")
    from sluice.cli.printing import spark_log_aside
    from sluice.project import find_project
    from sluice.running.check import check_project

    with spark_log_aside("check"):
        findings = list(check_project(find_project(project), stream, analyse=not no_spark))
    if as_json:
        print_json(
            [
                {
                    "stream": found.stream,
                    "file": found.file,
                    "error": None if found.error is None else error_document(found.error),
                }
                for found in findings
            ]
        )
    else:
        for found in findings:
            if found.error is not None:
                place = found.error.where or found.file
                print(f"{place}: {found.stream or 'declarations'}: {found.error.problem}; {found.error.remedy}")
        wrong = sum(found.error is not None for found in findings)
        print(f"{len(findings)} checked, {wrong} with problems", file=sys.stderr)
    if any(found.error is not None for found in findings):
        raise typer.Exit(2)

"""What a declaration shows to be wrong: refused in the same words by every command that works on a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sluice.errors import DeclarationError, Problem
from sluice.planning.own_output import check_own_output
from sluice.planning.shared_sinks import shared_sink
from sluice.planning.transform_text import check_functions
from sluice.project import Project
from sluice.quality.declared_suite import declared_suite
from sluice.quality.suite import Suite
from sluice.storage import Storage
from sluice.stream import Stream


@dataclass(frozen=True)
class CheckedDeclaration:
    """A declaration in which nothing is wrong, as far as it tells by itself; all locations are absolute."""

    project: Project
    stream: Stream
    streams: Mapping[str, Stream]
    """Every stream of the project."""
    conf: Mapping[str, str]
    """The settings of Spark that it runs with."""
    shared: Problem | None
    """That another stream writes to the same sink, if one does."""

    @classmethod
    def of(cls, project: Project, stream: Stream, streams: Mapping[str, Stream]) -> CheckedDeclaration:
        """Look at a declaration beside its project; nothing of what it works on is read.

        Args:
            project: The project of the stream.
            stream: The declaration, with absolute locations.
            streams: Every stream of the project, with absolute locations.

        Raises:
            DeclarationError: The transform does not take the sources, the stream writes where it or another stream
                reads or writes, Spark takes an option with other settings only, or the sink with another Spark.
        """
        check_functions(project, stream)
        check_own_output(stream, project.home)
        conf = project.conf_of(stream)
        for name, source in stream.sources.items():
            source.check_settings(conf, place=f"{stream.place}, source `{name}`")
        if project.is_remote and stream.sink.needs_own_spark:
            raise DeclarationError(
                f"{stream.sink.named} can't be written over Spark Connect: the run's own process writes it",
                where=stream.place,
                remedy="run it with a Spark of its own: `[spark] master`",
            )
        stream.sink.check_settings(conf, place=f"{stream.place}, sink")
        return cls(project, stream, streams, conf, shared_sink(stream, streams))

    @cached_property
    def suite(self) -> Suite | None:
        """The stream's suite, which is loaded when it is first asked for; None when it declares none.

        Raises:
            DeclarationError: There is no such suite, or something in it is wrong.
            StorageError: It can't be read right now.
        """
        return declared_suite(self.project, self.stream, storage=self.project.storage())

    def check_table(self, *, storage: Storage) -> None:
        """Make sure that a table that is there already takes what is declared.

        Raises:
            DeclarationError: It does not.
            RefusedError: It is damaged.
            StorageError: It can't be read right now.
        """
        self.stream.sink.check_table(self.stream.sink_use(self.conf, storage=storage))

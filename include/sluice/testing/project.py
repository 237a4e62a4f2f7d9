"""The user's project with the bench's home, clock and Spark, and nothing of what is declared as real places."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sluice.project import Project
from sluice.storage import Storage
from sluice.testing.crash import Watch, WatchedStorage
from sluice.testing.places import Places
from sluice.testing.session import MASTER


@dataclass(frozen=True)
class BenchProject(Project):
    """A project whose streams are run in a bench."""

    watch: Watch = field(default_factory=Watch, compare=False)

    def storage(self) -> Storage:
        return WatchedStorage(self.watch)


def bench_project(project: Project | None, folder: Path, watch: Watch) -> tuple[BenchProject, Places]:
    """The project of a bench.

    Args:
        project: The user's, whose code and settings count; None where streams are given as such.
        folder: The bench's.
        watch: Is told what is written.
    """
    root, home = (str(folder), str(folder)) if project is None else (project.root, project.home)
    places = Places(str(folder), root, home)
    return (
        BenchProject(
            root=root,
            name="bench" if project is None else project.name,
            home=places.home,
            stream_folders=(),
            import_roots=() if project is None else project.import_roots,
            spark_master=MASTER,
            spark_conf={} if project is None else project.spark_conf,
            watch=watch,
        ),
        places,
    )

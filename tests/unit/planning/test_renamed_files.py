"""Files that get another name after they were read."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from sluice.monitoring.inspection import stream_lag
from tests.builders import NOW
from tests.remedies import read_remedy
from tests.unit.engine_lab import Lab, make_lab, write_file


def rename(lab: Lab, old: str, new: str) -> Path:
    landing = Path(lab.stream.sources["landing"].location)
    return (landing / old).rename(landing / new)


def test_a_renamed_file_is_set_aside(tmp_path: Path) -> None:
    """Its rows are there; under its old name it is nothing new, and touched it is another file."""
    lab = make_lab(tmp_path, max_files_per_batch=2)
    for number in range(3):
        lab.arrive(0, f"{number}.json")
    lab.run()

    renamed = rename(lab, "1.json", "other.json")
    lab.arrive(1)
    assert lab.run().plan.warnings[0].code == "FILE_RENAMED"
    assert lab.sink.ids() == Counter(range(4))
    assert lab.plan().verdict == "skip"

    rename(lab, "other.json", "1.json")
    assert lab.plan().warnings == ()
    renamed = rename(lab, "1.json", "other.json")
    os.utime(renamed, (1, 1))
    lab.run()
    assert lab.sink.ids() == Counter([*range(4), 1])


def test_a_new_file_that_looks_like_one_that_was_cleaned_up(tmp_path: Path) -> None:
    """It is set aside as long as it has that time and size: the plan, and what waits, count it."""
    lab = make_lab(tmp_path)
    lab.arrive(0, "0.json")
    lab.run()
    landing = Path(lab.stream.sources["landing"].location)
    (landing / "0.json").unlink()
    lab.arrive(0, "1.json")

    plan = lab.plan()

    assert (plan.verdict, plan.reason) == ("skip", "nothing new; set aside: 1 file that looks like a renamed one")
    (lag,) = stream_lag(lab.stream, lab.project.stream_home(lab.stream), NOW).values()
    assert (lag.amount["files"], lag.set_aside, lag.as_json(NOW)["held_back"]) == (0, {"files": 1}, 1)
    lab.arrive(5, "2.json")
    lab.arrive(0, "3.json")
    assert lab.plan().reason == "`landing`: 1 new file; set aside: 2 files that look like renamed ones"
    os.utime(landing / "1.json", (1, 1))
    os.utime(landing / "3.json", (1, 1))
    assert lab.plan().reason == "`landing`: 3 new files"


def test_a_file_that_spark_took_by_itself(tmp_path: Path) -> None:
    """Nobody noted its size: the time alone is a warning."""
    lab = make_lab(tmp_path)
    lab.arrive(0, "0.json")
    lab.engine().once()
    rename(lab, "0.json", "other.json")

    plan = lab.plan()

    (warning,) = plan.warnings
    assert (warning.code, warning.consequence) == ("FILE_RENAMED", "its rows are read again")
    assert plan.verdict == "run"


def test_logs_that_are_rotated(tmp_path: Path) -> None:
    """What was read is set aside under its new name, though another file has the old one; that one is told of."""
    lab = make_lab(tmp_path)
    lab.arrive(0, "access.log")
    lab.run()
    rename(lab, "access.log", "access.log.1")
    lab.arrive(5, "access.log", rows=2)

    plan = lab.plan()

    assert plan.verdict == "skip"
    assert [(found.code, Path(found.file).name) for found in plan.warnings] == [
        ("FILE_RENAMED", "access.log.1"),
        ("FILE_CHANGED", "access.log"),
    ]
    assert lab.sink.ids() == Counter([0])


def test_a_file_that_has_grown(tmp_path: Path) -> None:
    """With another size, something in it is never read; with another time alone, that may be so."""
    lab = make_lab(tmp_path)
    for number in range(3):
        lab.arrive(number, f"{number}.json")
    lab.run()
    touched = Path(lab.stream.sources["landing"].location) / "1.json"
    before = touched.stat()
    os.utime(touched, (9, 9))
    assert [found.remedy.partition("; ")[2] for found in lab.plan().warnings] == [
        "of one that was only touched, nothing is missing"
    ]
    os.utime(touched, ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert lab.plan().warnings == ()

    lab.arrive(9, "2.json", rows=3)

    (warning,) = lab.plan().warnings
    read_remedy(warning, "FILE_CHANGED", "let it arrive in a file with a name of its own")
    assert (Path(warning.file).name, warning.is_blocking) == ("2.json", False)

    write_file(rename(lab, "2.json", "3.json").with_name("2.json"), [{"id": 2, "at": 0}], 2)
    lab.run()
    assert (lab.plan().warnings, lab.sink.ids()) == ((), Counter(range(6)))


def test_a_file_that_was_packed_after_it_was_read(tmp_path: Path) -> None:
    """`gzip` keeps the time and takes the plain file away; unpacked again, it is what was read."""
    lab = make_lab(tmp_path)
    lab.arrive(0, "0.json")
    lab.arrive(1, "1.json")
    lab.run()
    landing = Path(lab.stream.sources["landing"].location)
    subprocess.run(["gzip", landing / "0.json"], check=True)

    (warning,) = lab.plan().warnings
    assert (warning.code, Path(warning.file).name) == ("FILE_RENAMED", "0.json.gz")
    assert lab.plan().verdict == "skip"

    shutil.copy(landing / "0.json.gz", landing / "2.json.gz")
    assert lab.plan().verdict == "run"
    subprocess.run(["gunzip", landing / "0.json.gz"], check=True)
    (landing / "2.json.gz").unlink()
    assert (lab.plan().verdict, lab.plan().warnings) == ("skip", ())

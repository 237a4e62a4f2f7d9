"""Every remedy is walked: the state is made, the message is read, what it says is done, and the stream is whole again.

Spark is the model of `engine_model`; what only Spark can know is walked in the tests that `ELSEWHERE` names.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sluice import sinks, sources
from sluice.errors import Problem, RefusedError
from sluice.running.preparation import prepare_run
from tests.builders import make_delta, put
from tests.engine_model import HeldRows
from tests.remedies import read_remedy
from tests.unit.engine_lab import NAME, Lab, leave_pending, make_lab, make_stream

ROOT = Path(__file__).parents[3]
FILES = 4
"""How many files have arrived, of one row each, when something goes wrong; one more arrives after that."""


@dataclass(frozen=True)
class Walk:
    """What goes wrong, and what the remedy says."""

    damage: Callable[[Lab], None]
    says: str
    """What the remedy has, as a pattern."""
    mend: Callable[[Lab], None] | None = None
    """Does what it says; None for what is restored from a backup."""
    begin: Callable[[Path], Lab] | None = None
    blocks: bool = True
    is_healthy: bool = True
    """Whether nothing is said any more once it is mended."""


def begun(root: Path, **its: object) -> Lab:
    """Three batches are done."""
    lab = make_lab(root, max_files_per_batch=1, **its)  # type: ignore[arg-type]
    for second in range(FILES - 1):
        lab.arrive(second, at_ms=second * 100)
    lab.run()
    lab.arrive(FILES - 1, at_ms=FILES * 100)
    return lab


def pending(root: Path) -> Lab:
    """The fourth is planned, and its driver was killed."""
    lab = make_lab(root, max_files_per_batch=1)
    for second in range(FILES - 1):
        lab.arrive(second)
    lab.run()
    leave_pending(lab, seconds=FILES, by_sluice=True)
    return lab


def holding(root: Path) -> Lab:
    """There is state: the watermark holds no row back for long."""
    return begun(root, operator=HeldRows(delay_ms=0))


def of_two(root: Path) -> Lab:
    """Two sources; the second never has anything."""
    return begun(root, names=("landing", "other"))


def of_spark(root: Path) -> Lab:
    """Spark made the checkpoint by itself, of two sources."""
    lab = make_lab(root, names=("landing", "other"), max_files_per_batch=1)
    for second in range(FILES):
        lab.arrive(second)
        lab.engine().once()
    return lab


def in_partitions(root: Path) -> Lab:
    """The files are in the folder of a partition."""
    lab = make_lab(root, max_files_per_batch=1)
    for second in range(FILES):
        lab.arrive(second, f"day=1/{second:05d}.json")
        if second < FILES - 1:
            lab.run()
    return lab


def of_a_table(root: Path) -> Lab:
    """The source is a Delta table, of one row a version."""
    stream = make_stream(root, {"landing": sources.delta(str(root / "table"), max_files_per_batch=1)})
    lab = Lab(root, stream)
    make_delta(root / "table", *[[number] for number in range(FILES - 1)])
    lab.run()
    make_delta(root / "table", [FILES - 1])
    return lab


def elsewhere(root: Path) -> Lab:
    """The checkpoint is not in the home."""
    lab = make_lab(root, max_files_per_batch=1)
    lab.stream = replace(lab.stream, checkpoint=str(root / "checkpoint"))
    for second in range(FILES):
        lab.arrive(second)
    lab.run()
    return lab


def new(root: Path) -> Lab:
    """Nothing was run yet."""
    lab = make_lab(root, max_files_per_batch=1)
    for second in range(FILES):
        lab.arrive(second)
    return lab


def deleted(*names: str) -> Callable[[Lab], None]:
    return lambda lab: [(lab.checkpoint / name).unlink() for name in names][:0] and None


def cut(name: str) -> Callable[[Lab], None]:
    """The end of a file is missing."""
    return lambda lab: os.truncate(lab.checkpoint / name, (lab.checkpoint / name).stat().st_size // 2)


def written(name: str, content: str) -> Callable[[Lab], None]:
    return lambda lab: put(lab.checkpoint / name, content) and None


def landing(lab: Lab, name: str) -> Path:
    return Path(lab.stream.sources["landing"].location, name)


def with_conf(conf: dict[str, str | int | float | bool] | None) -> Callable[[Lab], None]:
    """Other settings of the stream."""

    def change(lab: Lab) -> None:
        lab.stream = replace(lab.stream, conf=conf)

    return change


def with_source(**changes: object) -> Callable[[Lab], None]:
    """Declare the source with changes."""

    def change(lab: Lab) -> None:
        source = replace(lab.stream.sources["landing"], **changes)  # type: ignore[type-var]
        lab.stream = replace(lab.stream, sources={**lab.stream.sources, "landing": source})

    return change


def query_id(lab: Lab) -> str:
    return str(json.loads((lab.home / "generations" / "0001.json").read_bytes())["query_id"])


def write_id(lab: Lab) -> None:
    """As somebody does with an editor: the file ends with a new line, and its checksum is another one."""
    (lab.checkpoint / ".metadata.crc").unlink(missing_ok=True)
    put(lab.checkpoint / "metadata", f'{{"id":"{query_id(lab)}"}}\n')


def moved(old: str, new: str) -> Callable[[Lab], None]:
    return lambda lab: shutil.move(landing(lab, old), landing(lab, new))


def touched(name: str) -> Callable[[Lab], None]:
    return lambda lab: os.utime(landing(lab, name))


def sources_renamed(lab: Lab) -> None:
    lab.stream = replace(lab.stream, sources={"renamed": lab.stream.sources["landing"]})
    lab.lines = ("renamed",)


def sources_back(lab: Lab) -> None:
    lab.stream = replace(lab.stream, sources={"landing": next(iter(lab.stream.sources.values()))})
    lab.lines = ("landing",)


def another_table(lab: Lab) -> None:
    shutil.rmtree(lab.root / "table")
    make_delta(lab.root / "table", *[[number] for number in range(FILES)])


def from_a_table(lab: Lab) -> None:
    make_delta(lab.root / "another", [0])
    lab.stream = replace(lab.stream, sources={"landing": sources.delta(str(lab.root / "another"))})


def from_files(lab: Lab) -> None:
    as_before = sources.files(str(lab.root / "landing"), format="json", schema="id bigint", max_files_per_batch=1)
    lab.stream = replace(lab.stream, sources={"landing": as_before})


def rolled_back(lab: Lab) -> None:
    for number in (FILES - 2, FILES - 1):
        (lab.root / "table" / "_delta_log" / f"{number:020d}.json").unlink()


def read_by_another_query(lab: Lab) -> None:
    """The whole checkpoint is that of a copy of the stream, say."""
    put(lab.checkpoint / "metadata", '{"id":"8d3f8f3e-0000-4000-8000-000000000000"}')


def of_another_stream(lab: Lab) -> None:
    put(lab.checkpoint / "_sluice" / "owner.json", json.dumps({"home": "../home/another"}))


def give_back(lab: Lab) -> None:
    (lab.checkpoint / "_sluice" / "owner.json").unlink()


def damaged_commit(lab: Lab) -> None:
    """Who reads the table's checkpoint does not notice."""
    DeltaTable(lab.root / "table").create_checkpoint()
    put(lab.root / "table" / "_delta_log" / f"{FILES - 1:020d}.json", "{")


def rows_deleted(lab: Lab) -> None:
    DeltaTable(lab.root / "table").delete("id = 0")


def sink_elsewhere(place: str) -> Callable[[Lab], None]:
    """The stream goes into a Delta table that nobody has made, where something is."""

    def declare(lab: Lab) -> None:
        put(lab.root / place / "notes.txt", "not a table")
        lab.stream = replace(lab.stream, sink=sinks.delta(str(lab.root / place)))

    return declare


def a_folder_of_its_own(lab: Lab) -> None:
    lab.stream = replace(lab.stream, sink=make_stream(lab.root, lab.stream.sources).sink)


WALKS: dict[str, dict[str, Walk]] = {
    "COMMITS_MISSING": {"": Walk(deleted("commits/1", "commits/2"), "restore the commits from a backup")},
    "COMMIT_WITHOUT_OFFSETS": {"": Walk(deleted("offsets/2"), "restore offsets/2 from a backup")},
    "OFFSETS_GAP": {"": Walk(deleted("offsets/1"), "restore offsets/1 from a backup")},
    "FILE_DAMAGED": {
        name: Walk(cut(name), "restore the file and its `.crc` from a backup")
        for name in ("offsets/2", "offsets/1", "commits/2", "sources/0/2", "sources/0/0")
    },
    "SIDECAR_WITHOUT_FILE": {
        "of a write that failed": Walk(
            written("offsets/.3.crc", "crc"), "else delete the checksum file", deleted("offsets/.3.crc")
        ),
        "of a file that was deleted": Walk(
            lambda lab: (written("offsets/.3.crc", "crc")(lab), deleted("offsets/3")(lab))[:0] and None,
            "was deleted by hand, restore it",
            begin=pending,
        ),
    },
    "METADATA_MISSING": {"": Walk(deleted("metadata"), r'restore it as \{"id":"[0-9a-f-]{36}"\} \(delete', write_id)},
    "METADATA_DAMAGED": {"": Walk(cut("metadata"), r'restore it as \{"id":"[0-9a-f-]{36}"\} \(delete', write_id)},
    "QUERY_ID_CHANGED": {
        "the file": Walk(read_by_another_query, r'if only this file was changed, restore it as \{"id":"', write_id),
        "the checkpoint": Walk(read_by_another_query, "put the stream's own checkpoint back"),
    },
    "SOURCE_LOG_GAP": {"": Walk(deleted("sources/0/1"), "restore the file and its `.crc` from a backup")},
    "SOURCE_LOG_BEHIND": {"": Walk(deleted("sources/0/2"), "restore the file from a backup")},
    "STATE_VERSION_LOST": {
        "": Walk(
            lambda lab: [file.unlink() for file in lab.checkpoint.glob("state/0/0/3.*")][:0] and None,
            "restore the folder from a backup",
            begin=holding,
        )
    },
    "OPERATOR_METADATA_LOST": {
        "": Walk(deleted("state/0/_metadata/metadata"), "restore it before", begin=holding, blocks=False)
    },
    "INPUT_GONE": {
        "a file": Walk(
            lambda lab: landing(lab, "00003.json").unlink(), "bring the file back under the same name", begin=pending
        ),
    },
    "SOURCES_CHANGED": {
        "renamed": Walk(sources_renamed, "put the sources back", sources_back),
        "one more": Walk(
            lambda lab: setattr(
                lab, "stream", replace(lab.stream, sources={**lab.stream.sources, "more": sources.delta("/more")})
            ),
            "put the sources back as they were",
            sources_back,
        ),
    },
    "SOURCE_PATH_CHANGED": {
        "": Walk(
            lambda lab: with_source(path=str(lab.root / "moved"))(lab),
            "put the old path back",
            lambda lab: with_source(path=str(lab.root / "landing"))(lab),
        )
    },
    "SOURCE_ORDER_UNKNOWN": {
        "": Walk(lambda _: None, "run the stream once without a plan", lambda lab: lab.run() and None, begin=of_spark)
    },
    "SOURCE_TABLE_REPLACED": {"": Walk(another_table, "restore the table", begin=of_a_table)},
    "SOURCE_TABLE_ROLLED_BACK": {"": Walk(rolled_back, "restore the table's log", begin=of_a_table)},
    "SOURCE_NOT_APPEND_ONLY": {
        "": Walk(
            rows_deleted,
            "declare `skip_change_commits=True`",
            with_source(skip_change_commits=True),
            begin=of_a_table,
        )
    },
    "DELTA_COMMIT_DAMAGED": {
        "": Walk(
            damaged_commit,
            "restore the file from a backup",
            begin=of_a_table,
        )
    },
    "OFFSET_OF_ANOTHER_KIND": {
        "": Walk(from_a_table, "declare the sources that the checkpoint was made with", from_files)
    },
    "FILE_RENAMED": {
        "": Walk(moved("00001.json", "renamed.json"), "give it its old name back", moved("renamed.json", "00001.json"))
    },
    "SETTING_PINNED": {
        "": Walk(with_conf({"spark.sql.shuffle.partitions": 77}), "leave it out", with_conf(None), blocks=False)
    },
    "FILE_BESIDE_PARTITIONS": {
        "": Walk(
            moved("day=1/00003.json", "00003.json"),
            "move it into a partition folder",
            moved("00003.json", "day=1/00003.json"),
            begin=in_partitions,
            blocks=False,
        )
    },
    "FOLDER_IS_NO_COLUMN": {
        "": Walk(
            with_source(recursive_file_lookup=True, schema="id bigint, day int"),
            "take `recursive_file_lookup` out",
            with_source(recursive_file_lookup=False, schema="id bigint, day int"),
            begin=in_partitions,
            blocks=False,
        )
    },
    "FILES_TOO_OLD": {
        "raised": Walk(
            lambda lab: os.utime(landing(lab, "00003.json"), (1, 1)) or with_source(max_file_age_ms=1)(lab),
            "raise or remove `max_file_age`",
            with_source(max_file_age_ms=None),
            blocks=False,
        ),
        "touched": Walk(
            lambda lab: os.utime(landing(lab, "00003.json"), (1, 1)) or with_source(max_file_age_ms=1)(lab),
            "touch them",
            touched("00003.json"),
            blocks=False,
        ),
    },
    "NAME_UNREADABLE": {
        "": Walk(moved("00003.json", "00:03.json"), "rename it", moved("00:03.json", "late.json"), blocks=False)
    },
    "SINK_REPLACED": {
        "": Walk(lambda lab: put(lab.root / "sink" / "identity", "another") and None, "restore the table")
    },
    "SINK_AHEAD": {
        "": Walk(
            lambda lab: shutil.move(
                lab.root / "sink" / query_id(lab) / "2.json", lab.root / "sink" / query_id(lab) / "7.json"
            ),
            "restore the checkpoint that belongs to this sink",
        )
    },
    "CHECKPOINT_GONE": {
        "": Walk(lambda lab: shutil.rmtree(lab.checkpoint), "restore the folder from a backup"),
        "it is elsewhere": Walk(
            lambda lab: shutil.rmtree(lab.checkpoint), "restore the folder from a backup", begin=elsewhere
        ),
    },
    "CHECKPOINT_OF_ANOTHER_STREAM": {
        "": Walk(of_another_stream, "if that one is given up or has moved, delete", give_back, begin=elsewhere)
    },
    "NOT_A_DELTA_TABLE": {
        "": Walk(sink_elsewhere("notes"), "give the table a folder of its own", a_folder_of_its_own, begin=new)
    },
}
"""By code, the ways into it."""

ELSEWHERE = {
    "SOURCE_COLUMNS_CHANGED": ("tests/spark/test_schema_evolution.py::test_a_change_between_a_kill_and_its_resume"),
    "READ_OTHERWISE": "tests/spark/test_resumed_state.py::test_an_edit_behind_a_batch_whose_rows_count",
    "INPUT_CHANGED": "tests/spark/test_mended_files.py::test_a_file_that_changes_once_its_rows_are_in_the_sink",
    "GATE_CHANGED": "tests/unit/cli/test_quality_command.py::test_a_gate_that_a_run_has_opened_meanwhile",
    "KAFKA_RECORDS_GONE": "tests/kafka/test_runs.py::test_records_that_are_gone",
    "KAFKA_TRANSACTION_OPEN": "tests/kafka/test_meanwhile.py::test_a_transaction_is_open_behind_the_plan",
    "KAFKA_TOPIC_GONE": "tests/kafka/test_runs.py::test_a_topic_that_is_gone",
    "KAFKA_TOPIC_REPLACED": "tests/kafka/test_runs.py::test_a_topic_that_was_made_again",
    "TABLE_NOT_REGISTERED": "tests/spark/test_named_tables.py::test_a_catalog_that_does_not_take_the_table",
    "SOURCE_FEED_NOT_KEPT": "tests/spark/test_change_feeds.py::test_versions_of_which_no_changes_are_kept",
    "BACKFILL_BATCH_BY_BATCH": "tests/spark/test_backfill_refusals.py::test_rows_that_depend_on_the_batches",
    "BACKFILL_BEHIND_SOURCE": "tests/spark/test_backfills.py::test_a_chain_whose_live_stream_is_behind",
    "BACKFILL_BEYOND_WATERMARK": "tests/spark/test_backfills.py::test_rows_that_the_live_stream_keeps_back",
    "BACKFILL_DUPLICATES": "tests/spark/test_backfills.py::test_duplicates_across_intervals",
    "BACKFILL_UNDATED_ROWS": "tests/spark/test_backfill_refusals.py::test_rows_that_have_an_interval_only_now",
    "BACKFILL_EXCLUDED_ROWS": (
        "tests/spark/test_delta_planning.py::test_a_backfill_of_excluded_rows_that_were_rewritten"
    ),
    "BACKFILL_INPUT_GONE": "tests/unit/planning/test_backfill.py::test_a_file_that_is_gone",
    "BACKFILL_LATE_ROWS": "tests/unit/planning/test_backfill.py::test_late_rows_of_which_duplicates_may_come",
    "BACKFILL_MOVED_ROWS": "tests/spark/test_sink_operations.py::test_a_row_whose_day_was_repaired",
    "BACKFILL_OFFSETS_GONE": "tests/unit/planning/test_backfill.py::test_offsets_that_go_meanwhile",
    "BACKFILL_TABLE_SHARED": "tests/unit/planning/test_backfill.py::test_a_table_of_two_streams",
    "BACKFILL_UNFINISHED": "tests/unit/auditing/test_dead_backfills.py::test_one_beside_a_change_by_others",
    "CHECKPOINT_OF_BATCHES": "tests/spark/test_live_runs.py::test_a_continuous_query_on_a_checkpoint_of_batches",
    "CHECKPOINT_OF_EPOCHS": "tests/spark/test_live_runs.py::test_another_run_on_a_checkpoint_of_epochs",
    "CHECKPOINT_CHANGED": "tests/unit/running/test_second_run.py::test_a_foreign_writer_is_noticed",
    "SINK_RESTORED": "tests/spark/test_older_tables.py::test_a_table_that_was_taken_back",
    "COLUMN_NOT_NAMED": "tests/unit/planning/test_unnamed_columns.py::test_the_remedy",
    "CONTRACT_BROKEN": "tests/unit/gate/test_contracts.py::test_a_broken_contract_refuses",
    "DECISION_DAMAGED": "tests/spark/test_split_batches.py::test_a_damaged_decision",
    "DECISION_LOST": "tests/spark/test_split_batches.py::test_a_quarantine_ahead_of_everything",
    "DOCUMENT_DAMAGED": "tests/unit/gate/test_damaged_documents.py::test_what_to_do",
    "DOCUMENT_TOO_NEW": "tests/unit/test_documents.py::test_newer_format_is_refused",
    "FILE_CHANGED": "tests/unit/planning/test_renamed_files.py::test_a_file_that_has_grown",
    "FILE_NOT_READ": "tests/spark/test_vanished_files.py::test_one_that_is_back_under_its_name",
    "HELD_BY_QUALITY": "tests/spark/test_deleted_records.py::test_a_held_stream_is_released",
    "START_GONE": "tests/unit/sources/delta/test_source.py::test_starting_at_a_time_that_the_log_does_not_reach",
    "HOME_MISSING": "tests/unit/planning/test_missing_home.py::test_a_sink_that_a_stream_has_written",
    "INPUT_BEFORE_START": "tests/spark/test_wakes_meanwhile.py::test_what_spark_has_planned_from_before_the_start",
    "INPUT_IS_PATTERN": "tests/spark/test_edited_files_sources.py::test_a_batch_with_a_name_that_is_a_pattern_by_now",
    "INPUT_LEFT_OUT": "tests/spark/test_edited_files_sources.py::test_a_batch_that_the_sink_has_and_a_state_needs",
    "INPUT_RENAMED": "tests/spark/test_renamed_in_drains.py::test_before_the_batch_counts",
    "LEASE_TAKEN": "tests/airflow/test_one_verdict.py::test_what_to_do_beside_a_run",
    "LOG_VERSION_UNKNOWN": "tests/unit/checkpoint/test_log.py::test_unknown_version",
    "OUTPUT_GONE": "tests/spark/test_rereads.py::test_rows_that_nobody_can_read_any_more_fail",
    "OUTPUT_MODE_CHANGED": "tests/spark/test_output_mode_edit.py::test_an_edit_and_its_remedies",
    "QUARANTINE_LEFT": "tests/unit/gate/test_quarantine_places.py::test_an_earlier_quarantine",
    "READ_BY_ANOTHER_SOURCE": "tests/spark/test_edited_files_sources.py::test_files_that_another_source_has_read",
    "RELEASE_BY_ANOTHER_COLUMN": "tests/spark/test_releases_by_columns.py::test_the_remedy",
    "RELEASE_MARKS_GONE": "tests/spark/test_restored_halves.py::test_the_quarantine_of_a_release",
    "RELEASE_QUARANTINE_GONE": "tests/spark/test_edits_after_kills.py::test_a_release_whose_quarantine_is_gone",
    "RELEASE_UNFINISHED": "tests/spark/test_sink_operations.py::test_a_backfill_after_a_release_that_was_killed",
    "ROWS_NOT_IN_BALANCE": "tests/spark/test_balances.py::test_rows_that_were_lost",
    "SINK_LACKS_BATCHES": "tests/spark/test_unnoted_sinks.py::test_a_checkpoint_of_plain_spark",
    "SINK_MOVED": "tests/spark/test_split_batches.py::test_a_first_batch_is_not_finished_elsewhere",
    "SINKS_CHANGED": "tests/spark/test_several_sinks.py::test_sinks_that_change",
    "SINK_SHARED": "tests/unit/test_table_writers.py::test_every_name_of_a_table",
    "SOURCES_EXCHANGED": "tests/spark/test_edited_files_sources.py::test_two_sources_that_are_exchanged",
    "SOURCE_ORDER_CHANGED": "tests/spark/test_several_sources.py::test_a_changed_order_is_refused",
    "SOURCE_RESTORED": "tests/spark/test_restored_sources.py::test_a_delete_that_is_undone",
    "TOMBSTONES_GONE": "tests/spark/test_changes.py::test_deletes_that_are_gone",
    "STAGED_ROWS_GONE": "tests/spark/test_split_batches.py::test_staged_rows_that_are_gone",
    "STATE_CHANGED": "tests/spark/test_state_check.py::test_changed_state",
    "STREAM_RENAMED": "tests/spark/test_renamed_streams.py::test_the_stream_goes_on",
    "TRANSACTIONS_EXPIRE": "tests/spark/test_expired_transactions.py::test_a_first_run",
    "TRANSACTION_FORGOTTEN": "tests/spark/test_expired_transactions.py::test_commits_that_are_restored",
}
"""By code, the test that walks its remedy; what is known only with Spark, or with more than a stream."""

EVERY = [(code, name) for code, walks in WALKS.items() for name in walks]


def said(lab: Lab, walk: Walk) -> Problem:
    """What is said."""
    plan = lab.plan()
    if walk.blocks and plan.problem is not None:
        return plan.problem
    return plan.warnings[0]


@pytest.mark.parametrize(("code", "name"), EVERY, ids=[": ".join(filter(None, walk)) for walk in EVERY])
def test_what_to_do(tmp_path: Path, code: str, name: str) -> None:
    """The message names the code and the remedy; done as it says, every row is there once, and nothing is said."""
    walk = WALKS[code][name]
    root = tmp_path / "live"
    lab = (walk.begin or begun)(root)
    shutil.copytree(root, tmp_path / "backup", symlinks=True)

    walk.damage(lab)
    problem = said(lab, walk)
    assert problem.code == code
    assert re.search(walk.says, problem.remedy), problem.remedy
    if problem.is_blocking and code != "SOURCE_ORDER_UNKNOWN":
        with pytest.raises(RefusedError):
            prepare_run(lab.project, lab.request(), clock=lab.clock)

    if walk.mend is not None:
        walk.mend(lab)
    else:
        restore(tmp_path / "backup", root)
    if (root / "table").exists():
        make_delta(root / "table", [FILES])
    else:
        folder = "day=1/" if walk.begin is in_partitions else ""
        lab.arrive(100, f"{folder}{FILES:05d}.json", at_ms=100_000)
    lab.run()

    plan = lab.plan()
    assert (plan.verdict, plan.warnings) == ("skip", ())
    assert lab.sink.ids() - Counter([FILES]) == Counter(range(FILES))


def restore(backup: Path, root: Path) -> None:
    """What was damaged is as it was; what came since stays."""
    for place in ("home", "checkpoint", "landing", "table", "sink"):
        if (backup / place).exists():
            runs = root / place / NAME / "runs"
            kept = {file.name: file.read_bytes() for file in runs.glob("*.json")}
            shutil.rmtree(root / place, ignore_errors=True)
            shutil.copytree(backup / place, root / place, symlinks=True)
            for name, content in kept.items():
                put(runs / name, content)


def codes() -> Iterator[str]:
    """Every code that a problem of ours can have."""
    for package in ("include/sluice", "plugins/sluice_airflow"):
        for file in (ROOT / package).rglob("*.py"):
            yield from re.findall(r'code="([A-Z_]+)"', file.read_text())


def test_every_code_is_walked() -> None:
    """Here or elsewhere, each once; and the documents know it."""
    known = set(codes())
    documented = re.findall(r"^\| `([A-Z_]+)` \|", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(known)
    assert sorted([*WALKS, *ELSEWHERE]) == sorted(known)


@pytest.mark.parametrize("code", ELSEWHERE)
def test_the_others_are_there(code: str) -> None:
    """The test that is named reads that code's remedy, which fails if it says anything else, and does it."""
    file, _, name = ELSEWHERE[code].partition("::")
    tree = ast.parse((ROOT / file).read_text())
    (test,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)
    read = [
        call
        for call in ast.walk(test)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == read_remedy.__name__
    ]
    assert [call.args[1].value for call in read if isinstance(call.args[1], ast.Constant)] == [code]
    assert any(isinstance(node, ast.Call) and node.lineno > (read[0].end_lineno or 0) for node in ast.walk(test))

"""What others do to the tables of a history: they keep house, and change rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from tests.builders import clean_log
from tests.spark.history_oracle import QUARANTINES, TABLES
from tests.spark.history_runs import Runs


@dataclass
class Others(Runs):
    """A life with runs, beside others."""

    def maintain(self, pick: int, what: str) -> None:
        """Other writers compact a table, delete what belongs to no version of it, or clean its log up."""
        found = [path for path in (*TABLES, "more") if any((self.lab.root / path / "_delta_log").glob("[0-9]*"))]
        if not found:
            return
        path = found[pick % len(found)]
        table = DeltaTable(str(self.lab.root / path))
        if what == "clean":
            clean_log(self.lab.root / path, self.inputs.read_version() if path == "more" else None)
        elif what == "vacuum" and path != "more":
            table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
        else:
            table.optimize.compact()
        if what != "compact" and path == self.reader.table:
            self.reader.lose()
        self.told.append(f"{what} {path}")
        self.look(is_complete=False)

    def write_by_others(self, what: str, pick: int) -> None:
        """Other writers delete a row, change it by a MERGE, or mend it in the quarantine."""
        tables = QUARANTINES if what == "mend" else TABLES
        found = sorted(
            n for n, place in self.oracle.known.items() if place and place[0] in tables and n not in self.oracle.loose
        )
        if not found:
            return
        number = found[pick % len(found)]
        path, mark = self.oracle.place_of(number)
        table = DeltaTable(str(self.lab.root / path))
        if what == "delete":
            table.delete(f"n = {number}")
            self.oracle.known[number] = None
        elif what == "mend":
            table.update({"bad": "false"}, predicate=f"n = {number}")
        else:
            rows = pa.table({"n": pa.array([number], pa.int64())})
            merge = table.merge(rows, "t.n = o.n", source_alias="o", target_alias="t")
            merge.when_matched_update({"v": "t.v + 100"}).execute()
            self.oracle.known[number] = path, mark + 100
        self.told.append(f"{what} of row {number} in {path} by others")
        self.look(is_complete=False)

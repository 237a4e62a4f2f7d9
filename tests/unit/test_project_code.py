"""Importing a project's modules as they are now, and packing them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sluice.project_code import import_module, own_modules, read_code


def put(file: Path, text: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def names(root: Path, *data: Path) -> list[str]:
    return [name for name, _ in read_code([str(root)], [str(folder) for folder in data]).files]


class TestPacking:
    """What is sent to other machines."""

    def test_only_what_can_be_imported(self, tmp_path: Path) -> None:
        """Neither data nor settings nor what is installed: the settings may hold secrets."""
        for name in ("beside.py", "jobs/a.py", "jobs/deep/b.py", "sluice.toml", "jobs/rows.json"):
            put(tmp_path / name)
        for name in ("day=1/c.py", ".git/d.py", "jobs/__pycache__/e.py", "env/f.py", "lake/g.py"):
            put(tmp_path / name)
        put(tmp_path / "env" / "pyvenv.cfg")

        assert names(tmp_path, tmp_path / "lake") == ["beside.py", "jobs/a.py", "jobs/deep/b.py"]

    def test_a_root_that_holds_the_data_is_a_root_all_the_same(self, tmp_path: Path) -> None:
        put(tmp_path / "a.py")

        assert names(tmp_path, tmp_path) == ["a.py"]

    def test_links(self, tmp_path: Path) -> None:
        """Code that is mounted by links is found, once, and a link that goes round in a circle ends."""
        put(tmp_path / "store" / "jobs" / "a.py")
        root = tmp_path / "root"
        root.mkdir()
        (root / "jobs").symlink_to(tmp_path / "store" / "jobs")
        (root / "jobs" / "again").symlink_to(root / "jobs")
        (root / "gone.py").symlink_to(tmp_path / "nowhere.py")

        assert names(root) == ["jobs/a.py"]

    def test_of_two_roots_the_first_counts(self, tmp_path: Path) -> None:
        put(tmp_path / "1" / "a.py", "first")
        put(tmp_path / "2" / "a.py", "second")
        put(tmp_path / "2" / "b.py", "second")

        code = read_code([str(tmp_path / "1"), str(tmp_path / "2")], [])

        assert code.files == (("a.py", b"first"), ("b.py", b"second"))

    def test_equal_code_makes_an_equal_archive(self, tmp_path: Path) -> None:
        """Whenever it was written, and wherever it lies; other code makes another version."""
        for root in ("one", "two"):
            put(tmp_path / root / "jobs" / "a.py", "A = 1")
            put(tmp_path / root / "b.py")
        one, two = (read_code([str(tmp_path / root)], []) for root in ("one", "two"))
        put(tmp_path / "two" / "b.py", "B = 1")
        changed = read_code([str(tmp_path / "two")], [])

        assert one.archive() == two.archive()
        assert one.version == two.version != changed.version

    def test_the_archive_is_imported_from(self, tmp_path: Path) -> None:
        """Packages with and without `__init__.py`, as from the folder."""
        put(tmp_path / "code" / "jobs" / "deep" / "a.py", "from shapes import B\nA = B + 1")
        put(tmp_path / "code" / "shapes" / "__init__.py", "B = 1")
        archive = tmp_path / "code.zip"
        archive.write_bytes(read_code([str(tmp_path / "code")], []).archive())

        found = subprocess.run(
            [
                sys.executable,
                "-Ic",
                f"import sys; sys.path.insert(0, {str(archive)!r}); import jobs.deep.a as a; print(a.A)",
            ],
            capture_output=True,
            text=True,
            check=True,
        )

        assert found.stdout == "2\n"


class TestImporting:
    """Modules of projects, in one process after another."""

    def test_a_changed_module_is_imported_anew(self, tmp_path: Path) -> None:
        """Also one that only another module imports."""
        roots = [str(tmp_path)]
        needed = put(tmp_path / "import_b.py", "B = 1")
        put(tmp_path / "import_a.py", "from import_b import B")
        first = import_module("import_a", roots)

        assert import_module("import_a", roots) is first
        put(needed, "B = 'two'")
        assert import_module("import_a", roots).B == "two"

    @pytest.mark.parametrize("package", [True, False])
    def test_projects_may_have_modules_of_one_name(self, tmp_path: Path, *, package: bool) -> None:
        for number in (1, 2):
            put(tmp_path / str(number) / "import_jobs" / "visits.py", f"NUMBER = {number}")
        if package:
            put(tmp_path / "2" / "import_jobs" / "__init__.py")

        found = [import_module("import_jobs.visits", [str(tmp_path / str(number))]).NUMBER for number in (1, 2, 1)]

        assert found == [1, 2, 1]
        assert str(tmp_path / "2") not in sys.path

    def test_what_others_have_imported_is_left_alone(self, tmp_path: Path) -> None:
        """A module that was there before, and whatever lies below a root under another name."""
        put(tmp_path / "import_x.py")
        before = sys.modules["import_other"] = type(sys)("import_other")
        before.__file__ = str(put(tmp_path / "import_other.py"))
        try:
            import_module("import_x", [str(tmp_path)])
            put(tmp_path / "import_x.py", "X = 1")
            import_module("import_x", [str(tmp_path)])

            assert sys.modules["import_other"] is before
            assert set(own_modules([str(tmp_path)])) == {"import_x", "import_other"}
        finally:
            del sys.modules["import_other"]

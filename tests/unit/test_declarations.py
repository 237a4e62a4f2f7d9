"""The files that declare streams: what they declare, and what is wrong with others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sluice.declarations import load_declarations
from sluice.errors import DeclarationError, UnknownStreamError
from sluice.project import load_project
from sluice.running.check import check_project
from tests.builders import make_stream, put
from tests.unit.shop import DECLARATION, make_project

pytestmark = pytest.mark.usefixtures("clean_environment")


class TestDeclarations:
    """Loading the files that declare streams."""

    def test_streams(self, tmp_path: Path) -> None:
        """Declarations are loaded with absolute locations, and know their file."""
        declarations = make_project(tmp_path).declarations()
        declared = declarations.streams

        assert declarations.errors() == []
        assert list(declared) == ["visits"]
        assert declared["visits"].file == f"{tmp_path}/declared/visits.py"
        assert declared["visits"].stream.sink.location == f"{tmp_path}/data/lake"
        assert declared["visits"].stream.sources["visits"].location == f"{tmp_path}/data/visits"

    def test_private_files_are_left_out(self, tmp_path: Path) -> None:
        """A helper module, `_name.py`, and other files declare nothing."""
        project = make_project(tmp_path, b=DECLARATION, a="", _helper="raise SystemError")
        put(tmp_path / "declared" / "notes.txt", "not python")

        assert project.declaration_files() == [f"{tmp_path}/declared/a.py", f"{tmp_path}/declared/b.py"]

    def test_stream_by_name(self, tmp_path: Path) -> None:
        """A stream is found by its name."""
        assert make_project(tmp_path).stream("visits").name == "visits"

    def test_unknown_stream(self, tmp_path: Path) -> None:
        """A name that is nearly right gets a suggestion, any other the list."""
        project = make_project(tmp_path)

        with pytest.raises(UnknownStreamError, match="did you mean `visits`"):
            project.stream("vists")
        with pytest.raises(UnknownStreamError, match="declared are: visits"):
            project.stream("zzz")

    def test_unknown_stream_beside_a_broken_file(self, tmp_path: Path) -> None:
        """The name is told, and the file that may declare it."""
        project = make_project(tmp_path, a=DECLARATION, b="import nothing_like_this\n")

        with pytest.raises(DeclarationError, match="there is no stream `vists` in the files that load") as caught:
            project.stream("vists")

        assert "No module named 'nothing_like_this'" in caught.value.problem
        assert caught.value.where is not None
        assert caught.value.where.startswith(f"{tmp_path}/declared/b.py")
        assert "did you mean `visits`? Else: " in str(caught.value)

    def test_name_declared_twice(self, tmp_path: Path) -> None:
        """Two files that declare the same name are both named."""
        project = make_project(tmp_path, a=DECLARATION, b=DECLARATION)

        ((file, error),) = project.declarations().errors()

        assert file == f"{tmp_path}/declared/b.py"
        assert error.problem == "stream `visits` is declared twice"
        assert error.where == f"{tmp_path}/declared/a.py:4 and {tmp_path}/declared/b.py:4"

    def test_what_is_wrong_hides_no_other(self, tmp_path: Path) -> None:
        """A file that does not import, a name that two files declare, a path that leaves the project."""

        def declare(name: str) -> str:
            return DECLARATION.replace('name="visits"', f'name="{name}"')

        outside = declare("outside").replace('"data/visits"', '"../visits"')
        project = make_project(
            tmp_path,
            a=declare("one"),
            b="import nothing_like_this\n",
            c=declare("one") + declare("two").replace("visits = ", "two = "),
            d=outside + declare("four").replace("visits = ", "four = "),
        )

        found = project.declarations()

        assert list(found.streams) == ["two", "four"]
        assert [(Path(file).name, error.problem) for file, error in found.errors()] == [
            ("b.py", "the declaration does not import: ModuleNotFoundError: No module named 'nothing_like_this'"),
            ("c.py", "stream `one` is declared twice"),
            ("d.py", "the path '../visits' leaves the project"),
        ]

    def test_absolute_locations_are_found_once(self, tmp_path: Path) -> None:
        """A process resolves a declaration when it has loaded it, and anew when its file has changed."""
        project = make_project(tmp_path)
        first = project.stream("visits")

        assert project.stream("visits") is first
        put(tmp_path / "declared" / "visits.py", DECLARATION.replace("data/lake", "data/other"))
        assert project.stream("visits").sink.location == f"{tmp_path}/data/other"

    def test_missing_folder(self, tmp_path: Path) -> None:
        """A folder of declarations that is not there is named."""
        project = load_project(put(tmp_path / "sluice.toml", ""))

        with pytest.raises(DeclarationError) as caught:
            project.declarations()

        assert caught.value.where == f"{tmp_path}/streams"

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            ("\nimport absent_module", "ModuleNotFoundError: No module named 'absent_module'"),
            ("\n1 / 0", "ZeroDivisionError: division by zero"),
            ("\nname = (", "SyntaxError: '(' was never closed"),
        ],
    )
    def test_file_that_does_not_import(self, tmp_path: Path, content: str, problem: str) -> None:
        """The message has Python's own words and the line in the declaration."""
        file = put(tmp_path / "visits.py", content)

        with pytest.raises(DeclarationError) as caught:
            load_declarations(str(file))

        assert problem in caught.value.problem
        assert caught.value.where == f"{file}:2"

    def test_error_of_ours_in_a_declaration(self, tmp_path: Path) -> None:
        """A wrong option keeps its own message and gets the line where it is declared."""
        file = put(tmp_path / "visits.py", DECLARATION.replace('schema="id bigint"', 'schema="id bigint", heade=1'))

        with pytest.raises(DeclarationError) as caught:
            load_declarations(str(file))

        assert caught.value.problem == "unknown option `heade`"
        assert caught.value.where == f"{file}:6: sources.files('data/visits')"

    def test_error_of_ours_without_a_place(self, tmp_path: Path) -> None:
        """An error that names no place gets the line alone."""
        content = "from sluice.errors import DeclarationError\nraise DeclarationError('not today')\n"
        file = put(tmp_path / "visits.py", content)

        with pytest.raises(DeclarationError, match="not today") as caught:
            load_declarations(str(file))

        assert caught.value.where == f"{file}:2"

    def test_file_that_is_no_python(self, tmp_path: Path) -> None:
        """A file of another kind can't be loaded."""
        with pytest.raises(DeclarationError, match="can't be imported"):
            load_declarations(str(put(tmp_path / "visits.txt")))

    @pytest.mark.parametrize(
        "content",
        [
            "from dataclasses import dataclass\n@dataclass\nclass Place:\n    path: str\n",
            "from typing import NamedTuple\nclass Place(NamedTuple):\n    path: str\n",
            "from enum import Enum\nclass Place(Enum):\n    path = 'x'\n",
            "import msgspec\nclass Place(msgspec.Struct):\n    path: str\nmsgspec.convert({'path': 'x'}, Place)\n",
            "import typing\nclass Place:\n    path: str\ntyping.get_type_hints(Place)\n",
        ],
    )
    def test_classes(self, tmp_path: Path, content: str) -> None:
        """A file may have classes of its own, whose annotations are looked up in the module."""
        file = put(tmp_path / "visits.py", f"from __future__ import annotations\n{content}{DECLARATION}")

        assert [stream.name for stream in load_declarations(str(file))] == ["visits"]

    def test_a_broken_file_leaves_no_module(self, tmp_path: Path) -> None:
        """What did not import is not there."""
        before = set(sys.modules)
        with pytest.raises(DeclarationError):
            load_declarations(str(put(tmp_path / "visits.py", "import this_is_not_there")))

        assert not {name for name in set(sys.modules) - before if name.startswith("_sluice_")}

    def test_same_file_name_in_two_projects(self, tmp_path: Path) -> None:
        """Declarations are loaded under private names: two projects' `visits.py` do not meet."""
        one = put(tmp_path / "one" / "visits.py", DECLARATION)
        two = put(tmp_path / "two" / "visits.py", DECLARATION.replace('name="visits"', 'name="others"'))

        names = [load_declarations(str(file))[0].name for file in (one, two, one)]

        assert names == ["visits", "others", "visits"]
        assert "visits" not in sys.modules

    def test_checkpoint_is_resolved(self, tmp_path: Path) -> None:
        """A declared checkpoint becomes a location, too."""
        project = make_project(tmp_path)
        stream = project.resolve(make_stream(checkpoint="ckpt/visits"))

        assert stream.checkpoint == f"{tmp_path}/ckpt/visits"
        assert project.stream_home(stream).checkpoint_location(1) == f"{tmp_path}/ckpt/visits"
        assert project.stream_home(stream).location == f"{tmp_path}/var/home/visits"


class TestSharedCheckpoints:
    """Two streams that declare one checkpoint."""

    @pytest.mark.parametrize("written", ["ckpt/visits", "ckpt/../ckpt/visits", "file:{root}/ckpt/visits", "link"])
    def test_they_are_refused(self, tmp_path: Path, written: str) -> None:
        """Whatever they call it: by the list, by the check, and by name; a third one is not concerned."""
        (tmp_path / "ckpt" / "visits").mkdir(parents=True)
        (tmp_path / "link").symlink_to(tmp_path / "ckpt" / "visits")
        names = {"visits": "ckpt/visits", "others": written.format(root=tmp_path), "third": "ckpt/third"}
        declared = {
            name: DECLARATION.replace('name="visits"', f'name="{name}", checkpoint="{checkpoint}"')
            for name, checkpoint in names.items()
        }
        project = make_project(tmp_path, **declared)

        for name in ("visits", "others"):
            with pytest.raises(
                DeclarationError, match="the streams `others` and `visits` have one checkpoint"
            ) as found:
                project.stream(name)
            assert str(tmp_path / "declared" / f"{name}.py") in str(found.value.where)
        declarations = project.declarations()
        assert set(declarations.streams) == {"third"}
        assert all("have one checkpoint" in found.error.problem for found in declarations.unusable.values())
        assert set(declarations.unusable) == {"visits", "others"}
        assert project.stream("third").checkpoint == f"{tmp_path}/ckpt/third"
        wrong = {
            found.stream for found in check_project(project, analyse=False) if "one checkpoint" in str(found.error)
        }
        assert wrong == {"visits", "others"}

    def test_one_stream_is_checked(self, tmp_path: Path) -> None:
        """What is wrong with others, and with files that do not load, is no finding then."""
        broken = DECLARATION.replace('name="visits"', 'name="broken"').replace("transform=", "tranform=")
        project = make_project(tmp_path, visits=DECLARATION, broken=broken, unreadable="1 / 0")

        (found,) = check_project(project, "visits", analyse=False)
        assert (found.stream, found.file) == ("visits", str(tmp_path / "declared" / "visits.py"))
        assert len([*check_project(project, analyse=False)]) == 3
        with pytest.raises(DeclarationError, match="visit"):
            list(check_project(project, "visit", analyse=False))

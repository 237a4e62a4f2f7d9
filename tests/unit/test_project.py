"""`sluice.toml`, the declarations that it points at, and the functions that they name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice import find_project, sinks, sources
from sluice.errors import DeclarationError, UnknownStreamError
from sluice.project import Project, error_line, load_declarations, load_project, resolve_path
from sluice.running.check import check_project
from tests.builders import make_files_source, make_stream, put
from tests.fuzzing import DEEP, damaged, outcome

TOML = """
[project]
name = "shop"
home = "var/home"
streams = ["declared"]
path = ["."]

[spark]
master = "local[2]"
conf = { "spark.driver.memory" = "2g", "spark.ui.enabled" = false, "spark.task.maxFailures" = 1 }

[storage]
endpoint = "http://localhost:9000"
"""
DECLARATION = """
from sluice import Stream, sinks, sources

visits = Stream(
    name="visits",
    sources={"visits": sources.files("data/visits", format="json", schema="id bigint")},
    transform="shop_jobs:visits",
    sink=sinks.delta("data/lake"),
)
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("NAME", "HOME", "STREAMS", "PATH", "PROJECT", "SPARK_MASTER"):
        monkeypatch.delenv(f"SLUICE_{variable}", raising=False)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def make_project(folder: Path, toml: str = TOML, **declarations: str) -> Project:
    for name, content in (declarations or {"visits": DECLARATION}).items():
        put(folder / "declared" / f"{name}.py", content)
    return load_project(put(folder / "sluice.toml", toml))


class TestToml:
    """Reading `sluice.toml`."""

    def test_values(self, tmp_path: Path) -> None:
        """Paths are absolute, and Spark gets strings."""
        project = make_project(tmp_path)

        assert (project.root, project.name) == (str(tmp_path), "shop")
        assert project.home == f"{tmp_path}/var/home"
        assert project.stream_folders == (f"{tmp_path}/declared",)
        assert project.import_roots == (str(tmp_path),)
        assert project.spark_master == "local[2]"
        assert project.spark_conf == {
            "spark.driver.memory": "2g",
            "spark.ui.enabled": "false",
            "spark.task.maxFailures": "1",
        }
        assert project.storage().options == {"endpoint": "http://localhost:9000"}

    def test_defaults(self, tmp_path: Path) -> None:
        """An empty file is a project named as its folder."""
        project = load_project(put(tmp_path / "shop" / "sluice.toml", ""))

        assert project.name == "shop"
        assert project.home == f"{tmp_path}/shop/var/sluice"
        assert project.stream_folders == (f"{tmp_path}/shop/streams",)
        assert project.import_roots == (f"{tmp_path}/shop",)
        assert project.spark_master == "local[*]"

    def test_environment_overrides(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the file says may come from the environment in its place; lists are written as in `PATH`."""
        monkeypatch.setenv("SLUICE_NAME", "other")
        monkeypatch.setenv("SLUICE_STREAMS", "one:two")
        monkeypatch.setenv("SLUICE_PATH", "/opt/jobs")
        monkeypatch.setenv("SLUICE_HOME", "s3://bucket/home/")
        monkeypatch.setenv("SLUICE_SPARK_MASTER", "spark://host:7077")
        project = make_project(tmp_path)

        assert project.name == "other"
        assert project.stream_folders == (f"{tmp_path}/one", f"{tmp_path}/two")
        assert project.import_roots == ("/opt/jobs",)
        assert project.home == "s3://bucket/home"
        assert project.spark_master == "spark://host:7077"

    @pytest.mark.parametrize(
        ("file", "ours", "remote", "expected"),
        [
            ('[spark]\nmaster = "local[2]"', "", "sc://b", "sc://b"),
            ('[spark]\nmaster = "sc://a"', "sc://c", "sc://b", "sc://c"),
            ('[spark]\nmaster = "sc://a"', "", "", "sc://a"),
            ('[spark]\nmaster = "sc://a/;token=${SHOP_TOKEN}"', "", "", "sc://a/;token=open-sesame"),
        ],
    )
    def test_where_spark_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, file: str, ours: str, remote: str, expected: str
    ) -> None:
        """Our own variable wins, then Spark's, then the file; what it is, is not in the project's `repr`."""
        monkeypatch.setenv("SLUICE_SPARK_MASTER", ours)
        monkeypatch.setenv("SPARK_REMOTE", remote)
        monkeypatch.setenv("SHOP_TOKEN", "open-sesame")
        project = load_project(put(tmp_path / "sluice.toml", file))
        assert project.spark_master == expected
        assert expected not in repr(project)

    @pytest.mark.parametrize(("ours", "remote"), [("", "local"), ("local[2]", "sc://b")])
    def test_two_sparks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: str, remote: str) -> None:
        """What pyspark would follow against the project's word is refused."""
        monkeypatch.setenv("SLUICE_SPARK_MASTER", ours)
        monkeypatch.setenv("SPARK_REMOTE", remote)
        with pytest.raises(DeclarationError, match="SPARK_REMOTE names no Spark Connect server"):
            load_project(put(tmp_path / "sluice.toml", ""))

    def test_secrets_come_from_the_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """`${NAME}` is expanded in storage options and Spark's settings."""
        monkeypatch.setenv("SHOP_KEY", "abc")
        toml = '[storage]\nkey = "${SHOP_KEY}"\n[spark.conf]\n"spark.key" = "x-${SHOP_KEY}"\n'
        project = make_project(tmp_path, toml)

        assert project.storage_options == {"key": "abc"}
        assert project.spark_conf == {"spark.key": "x-abc"}

    @pytest.mark.parametrize(
        "toml",
        [
            '[spark.conf]\nspark.hadoop.fs.s3a.secret.key = "c4nary-value"',
            '[spark]\nconf = { spark.password = "c4nary-value" }',
            '[spark]\nconf = ["spark.password=c4nary-value"]',
            '[spark]\nconf = "spark.password=c4nary-value"',
            '[spark.conf]\n"spark.password" = ["c4nary-value"]',
            '[storage]\naws.secret = "c4nary-value"',
            '[storage]\naws_secret_access_key = ["c4nary-value"]',
            '[storage]\naws = { secret = "c4nary-value" }',
            '[project]\nstreams = "c4nary-value"',
            '[project]\nname = ["c4nary-value"]',
            'storage = "c4nary-value"',
            '[[storage]]\naws_secret_access_key = "c4nary-value"',
            '[storage]\naws_secret_access_key = "c4nary-value',  # no closing quote
            '[storage]\naws_secret_access_key = "c4nary-value"\n[storage]\nx = 1',
            '[spark]\npassword = "c4nary-value"',
        ],
    )
    def test_mistakes_tell_no_values(self, tmp_path: Path, toml: str) -> None:
        """Whatever is wrong with the file, the error names keys and types: any value may be a secret."""
        with pytest.raises(DeclarationError) as caught:
            make_project(tmp_path, toml)

        assert "c4nary-value" not in f"{caught.value} {caught.value!r} {caught.value.__cause__}"

    def test_repr_tells_no_settings(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A project, and what it is declared with, can be logged: no setting and no option is in its `repr`."""
        monkeypatch.setenv("SHOP_KEY", "c4nary-value")
        toml = '[storage]\nkey = "${SHOP_KEY}"\n[spark]\nmaster = "sc://h/;token=${SHOP_KEY}"\n'
        project = make_project(tmp_path, f'{toml}conf = {{ "spark.key" = "${{SHOP_KEY}}" }}')
        declared = [
            sources.files("in", format="csv", schema="a STRING", null_value="c4nary-value"),
            sinks.files("out", format="csv", null_value="c4nary-value"),
        ]

        for shown in (project, project.storage(), project.spark_conf and [project], *declared):
            assert "c4nary-value" not in f"{shown} {shown!r}"

    def test_variable_that_is_not_set(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A variable without a value is named, never left empty."""
        monkeypatch.delenv("SHOP_KEY", raising=False)

        with pytest.raises(DeclarationError, match="SHOP_KEY is not set"):
            make_project(tmp_path, '[storage]\nkey = "${SHOP_KEY}"')

    @pytest.mark.parametrize(
        ("toml", "unknown", "nearest"),
        [
            ("[projekt]", "unknown table: `projekt`", "did you mean `project`?"),
            ('[project]\nhomes = "x"', "unknown key in [project]: `homes`", "did you mean `home`?"),
            ('[spark]\nmastre = "x"', "unknown key in [spark]: `mastre`", "did you mean `master`?"),
            ("[zzz]", "unknown table: `zzz`", "valid are: project, spark, storage"),
        ],
    )
    def test_unknown_names(self, tmp_path: Path, toml: str, unknown: str, nearest: str) -> None:
        """An unknown table or key is refused with the nearest valid name."""
        with pytest.raises(DeclarationError) as caught:
            make_project(tmp_path, toml)

        assert caught.value.problem == unknown
        assert caught.value.remedy == nearest
        assert caught.value.where == f"{tmp_path}/sluice.toml"

    @pytest.mark.parametrize(
        ("toml", "remedy"),
        [
            ("[project]\nname = 5", "give a string"),
            ('[project]\nstreams = "streams"', "give a list of strings"),
            ("[project]\nstreams = [1]", "give a list of strings"),
            ("[spark]\nconf = 1", "give a table"),
            ("[storage]\nkey = 1", "give a string"),
            ("project = 1", "write [project]"),
            ("[spark.conf]\nspark.driver.memory = '2g'", "give a string, a number or a boolean; quote dotted keys"),
        ],
    )
    def test_wrong_types(self, tmp_path: Path, toml: str, remedy: str) -> None:
        """A value of the wrong type is refused, and the message says what to give."""
        with pytest.raises(DeclarationError) as caught:
            make_project(tmp_path, toml)

        assert caught.value.remedy == remedy

    def test_deep_nesting(self, tmp_path: Path) -> None:
        """More brackets than the parser recurses into are an error of the file."""
        with pytest.raises(DeclarationError, match="does not parse"):
            load_project(put(tmp_path / "sluice.toml", b"a = " + DEEP))

    @given(content=damaged(TOML.encode()))
    def test_any_bytes(self, tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
        """Any file is a project or a declaration error, never another error."""
        file = put(tmp_path_factory.getbasetemp() / "fuzzed" / "sluice.toml", content)

        assert isinstance(outcome(lambda: load_project(file)), Project | DeclarationError)


class TestFindProject:
    """Finding the project that a command is about."""

    def test_in_a_folder_above(self, tmp_path: Path) -> None:
        """The nearest `sluice.toml` upwards counts."""
        make_project(tmp_path)
        (tmp_path / "a" / "b").mkdir(parents=True)

        assert find_project(str(tmp_path / "a" / "b")).root == str(tmp_path)

    def test_by_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a folder `$SLUICE_PROJECT` counts, before the working directory."""
        make_project(tmp_path / "one")
        make_project(tmp_path / "two")
        monkeypatch.chdir(tmp_path / "one")
        assert find_project().root == str(tmp_path / "one")

        monkeypatch.setenv("SLUICE_PROJECT", str(tmp_path / "two"))
        assert find_project().root == str(tmp_path / "two")

    def test_none(self, tmp_path: Path) -> None:
        """Without any, the message says how to make one."""
        with pytest.raises(DeclarationError) as caught:
            find_project(str(tmp_path))

        assert "sluice init" in (caught.value.remedy or "")


class TestDeclarations:
    """Loading the files that declare streams."""

    def test_streams(self, tmp_path: Path) -> None:
        """Declarations are loaded with absolute locations, and know their file."""
        declared, errors = make_project(tmp_path).streams()

        assert errors == []
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

    def test_name_declared_twice(self, tmp_path: Path) -> None:
        """Two files that declare the same name are both named."""
        project = make_project(tmp_path, a=DECLARATION, b=DECLARATION)

        (error,) = project.streams()[1]

        assert error.problem == "stream `visits` is declared twice"
        assert error.where == f"{tmp_path}/declared/b.py and {tmp_path}/declared/a.py"

    def test_missing_folder(self, tmp_path: Path) -> None:
        """A folder of declarations that is not there is named."""
        project = load_project(put(tmp_path / "sluice.toml", ""))

        with pytest.raises(DeclarationError) as caught:
            project.streams()

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
        streams, errors = project.streams()
        assert (set(streams), ["have one checkpoint" in error.problem for error in errors]) == ({"third"}, [True, True])
        assert project.stream("third").checkpoint == f"{tmp_path}/ckpt/third"
        wrong = {
            found.stream for found in check_project(project, analyse=False) if "one checkpoint" in str(found.error)
        }
        assert wrong == {"visits", "others"}


class TestFunctions:
    """Importing what `module:function` names."""

    def test_load_function(self, tmp_path: Path) -> None:
        """A function is imported from the project's import roots."""
        put(tmp_path / "shop_jobs_a.py", "def visits(visits):\n    return visits\n")

        assert make_project(tmp_path).load_function("shop_jobs_a:visits")(5) == 5

    def test_no_such_function(self, tmp_path: Path) -> None:
        """A misspelt function gets a suggestion and the module's file."""
        file = put(
            tmp_path / "shop_jobs_b.py", "def visits(visits): ...\ndef _helper(): ...\nconstants = 1\nconstant = 1\n"
        )
        project = make_project(tmp_path)

        with pytest.raises(DeclarationError, match="did you mean `visits`") as caught:
            project.load_function("shop_jobs_b:vists")
        assert caught.value.where == str(file)
        with pytest.raises(DeclarationError, match=r"has no function `constant`.*; define it"):
            project.load_function("shop_jobs_b:constant")
        with pytest.raises(DeclarationError, match=r"has no function `_help`.*; define it"):
            project.load_function("shop_jobs_b:_help")

    def test_module_that_does_not_import(self, tmp_path: Path) -> None:
        """A module that fails is named with the line that failed."""
        file = put(tmp_path / "shop_jobs_c.py", "import os\nraise RuntimeError('no licence')\n")

        with pytest.raises(DeclarationError, match="RuntimeError: no licence") as caught:
            make_project(tmp_path).load_function("shop_jobs_c:visits")

        assert caught.value.where == f"{file}:2"

    def test_missing_module(self, tmp_path: Path) -> None:
        """A module that is nowhere is told from one that fails."""
        with pytest.raises(DeclarationError, match="No module named 'shop_jobs_absent'") as absent:
            make_project(tmp_path).load_function("shop_jobs_absent:visits")
        assert absent.value.where == f"import roots {tmp_path}"
        file = put(tmp_path / "shop_jobs_d.py", "import shop_jobs\n")
        with pytest.raises(DeclarationError, match="No module named 'shop_jobs'") as needed:
            make_project(tmp_path).load_function("shop_jobs_d:visits")
        assert needed.value.where == f"{file}:1"


class TestResolvePath:
    """Declared paths become locations, and relative ones stay in the project."""

    @pytest.mark.parametrize(
        ("path", "location"),
        [
            ("data/visits", "{root}/data/visits"),
            ("data/../data/visits/", "{root}/data/visits"),
            ("data/2026-*/{a,b}", "{root}/data/2026-*/{{a,b}}"),
            ("/data/visits/", "/data/visits"),
            ("/", "/"),
            ("file:///data/visits", "/data/visits"),
            ("file:/data/a%20b", "/data/a%20b"),
            ("s3://bucket/visits/", "s3://bucket/visits"),
        ],
    )
    def test_locations(self, tmp_path: Path, path: str, location: str) -> None:
        """Relative paths lie below the project; absolute ones and URLs are taken as they are."""
        assert resolve_path(path, str(tmp_path), place="here") == location.format(root=tmp_path)

    @pytest.mark.parametrize(
        "path", ["..", "../other", "data/../../other", "a/b/../../../x", "../*/visits", "*/../../x"]
    )
    def test_dots_that_leave_the_project(self, tmp_path: Path, path: str) -> None:
        """`..` may not lead out, also not behind a glob."""
        with pytest.raises(DeclarationError, match="leaves the project"):
            resolve_path(path, str(tmp_path / "project"), place="here")

    @pytest.mark.parametrize("path", ["link", "link/visits", "link/*.json", "data/../link/{a,b}"])
    def test_links_that_leave_the_project(self, tmp_path: Path, path: str) -> None:
        """A link inside the project to a folder outside is refused."""
        (tmp_path / "outside").mkdir()
        (tmp_path / "project").mkdir()
        (tmp_path / "project" / "link").symlink_to(tmp_path / "outside")

        with pytest.raises(DeclarationError, match="leaves the project"):
            resolve_path(path, str(tmp_path / "project"), place="here")

    def test_links_inside_the_project(self, tmp_path: Path) -> None:
        """A link to another folder of the project is fine, also when the project itself is reached by a link."""
        (tmp_path / "project" / "data").mkdir(parents=True)
        (tmp_path / "project" / "link").symlink_to("data")
        (tmp_path / "by_link").symlink_to("project")

        assert resolve_path("link/a", str(tmp_path / "by_link"), place="here") == f"{tmp_path}/by_link/link/a"

    def test_a_sibling_with_the_same_beginning(self, tmp_path: Path) -> None:
        """`project2` is not inside `project`."""
        with pytest.raises(DeclarationError, match="leaves the project"):
            resolve_path("../project2", str(tmp_path / "project"), place="here")

    def test_expansion_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A variable may hold a URL, and its `..` is not overlooked."""
        monkeypatch.setenv("LANDING", "s3://bucket/landing")
        assert resolve_path("${LANDING}/visits", str(tmp_path), place="here") == "s3://bucket/landing/visits"

        monkeypatch.setenv("LANDING", "..")
        with pytest.raises(DeclarationError, match="leaves the project"):
            resolve_path("${LANDING}/visits", str(tmp_path), place="here")

    @pytest.mark.parametrize("path", ["", "a\0b", None, 5])
    def test_no_path(self, tmp_path: Path, path: str) -> None:
        """What can't be a path is refused with its place."""
        with pytest.raises(DeclarationError, match="is not a path") as caught:
            resolve_path(path, str(tmp_path), place="sources.files(...)")

        assert caught.value.where == "sources.files(...)"

    @given(path=st.text(min_size=1, max_size=30) | st.text("./*{}[]ab:$%\\", min_size=1, max_size=20))
    def test_any_text_stays_inside(self, path: str) -> None:
        """Whatever is written, a location that is neither absolute nor a URL lies below the project."""
        found = outcome(lambda: resolve_path(path, "/work/shop", place="here"))

        is_open = path.startswith(("/", "file:")) or ":" in path
        assert isinstance(found, DeclarationError) or is_open or f"{found}/".startswith("/work/shop/")


def test_error_line_of_a_nested_call(tmp_path: Path) -> None:
    """The innermost line of the given file counts, not the library's below it."""
    with pytest.raises(DeclarationError) as caught:
        make_files_source(tmp_path, unknown_option=1)

    line = error_line(caught.value, __file__)
    assert line is not None
    assert line.startswith(f"{__file__}:")
    assert (error_line(caught.value) or "").partition(":")[0].endswith("declaring.py")

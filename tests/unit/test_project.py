"""`sluice.toml`, the declarations that it points at, and the functions that they name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from sluice import find_project, sinks, sources
from sluice.errors import DeclarationError
from sluice.project import Project, load_project
from tests.builders import put
from tests.fuzzing import DEEP, damaged, outcome
from tests.unit.shop import TOML, make_project

pytestmark = pytest.mark.usefixtures("clean_environment")


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
        assert project.storage().options == {"endpoint": "https://localhost:9000"}

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
        toml = '[storage]\ntoken = "${SHOP_KEY}"\n[spark.conf]\n"spark.key" = "x-${SHOP_KEY}"\n'
        project = make_project(tmp_path, toml)

        assert project.storage_options == {"token": "abc"}
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
        toml = '[storage]\ntoken = "${SHOP_KEY}"\n[spark]\nmaster = "sc://h/;token=${SHOP_KEY}"\n'
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
            make_project(tmp_path, '[storage]\ntoken = "${SHOP_KEY}"')

    @pytest.mark.parametrize(
        ("toml", "unknown", "nearest"),
        [
            ("[projekt]", "unknown table: `projekt`", "did you mean `project`?"),
            ('[project]\nhomes = "x"', "unknown key in [project]: `homes`", "did you mean `home`?"),
            ('[spark]\nmastre = "x"', "unknown key in [spark]: `mastre`", "did you mean `master`?"),
            ("[zzz]", "unknown table: `zzz`", "valid are: project, spark, storage, tables"),
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
            ("[storage]\nkey = [1]", "give a string, a number or a boolean; quote dotted keys"),
            ("project = 1", "write [project]"),
            ("[spark.conf]\nspark.driver.memory = '2g'", "give a string, a number or a boolean; quote dotted keys"),
        ],
    )
    def test_wrong_types(self, tmp_path: Path, toml: str, remedy: str) -> None:
        """A value of the wrong type is refused, and the message says what to give."""
        with pytest.raises(DeclarationError) as caught:
            make_project(tmp_path, toml)

        assert caught.value.remedy == remedy

    def test_signs_of_a_variable_in_a_password(self, tmp_path: Path) -> None:
        """What stands in them may be a part of it; the name of a variable is told."""
        for value, is_told in (("p$${hushhush}", False), ("${hushhush}", True), ("me:${HUSHHUSH}", True)):
            put(tmp_path / "sluice.toml", f'[storage]\naws_secret_access_key = "{value}"\n')

            with pytest.raises(DeclarationError, match="environment variable") as caught:
                find_project(str(tmp_path))

            assert ("hushhush" in str(caught.value).lower()) == is_told

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

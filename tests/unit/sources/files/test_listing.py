"""The files below a source's path, as Spark's file source lists them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import DeclarationError, NotThereError
from sluice.local_disk import _LocalFolder
from sluice.locations import local_path
from sluice.sources.files.listing import (
    ListedFile,
    Listing,
    Selection,
    file_uri,
    glob_pattern,
    is_glob,
    is_hidden,
    list_files,
)
from sluice.storage import Storage
from tests.builders import NOW_MS, put
from tests.fuzzing import outcome
from tests.unit.conftest import BUCKET


def listed(path: Path | str, **selection: object) -> Listing:
    return list_files(str(path), Selection(**selection), storage=Storage())


def names(listing: Listing) -> list[str]:
    return sorted(unquote(file.path.rpartition("/")[2]) for file in listing.files)


def problems(listing: Listing) -> list[tuple[str, str]]:
    return [(problem.code, problem.file) for problem in listing.problems]


class TestFolder:
    """A plain folder."""

    def test_direct_children(self, tmp_path: Path) -> None:
        """The files of the folder count, with their URIs; folders without `k=v` do not."""
        put(tmp_path / "a.json")
        put(tmp_path / "archive" / "b.json")
        listing = listed(tmp_path)

        assert [file.path for file in listing.files] == [f"file://{tmp_path}/a.json"]
        assert listing.problems == []
        assert not listing.has_partitions

    @pytest.mark.parametrize("name", ["_temporary", ".a.json.crc", ".hidden", "a.json._COPYING_", "_SUCCESS"])
    def test_hidden_files(self, tmp_path: Path, name: str) -> None:
        """Spark passes over names that begin with `_` or `.`, and over copies under way."""
        put(tmp_path / name)
        put(tmp_path / "a.json")

        assert names(listed(tmp_path)) == ["a.json"]

    @pytest.mark.parametrize("name", ["a_b.json", "a._COPYING_.json", "_a=b", "a.b.c", "a b", "-"])
    def test_visible_names(self, tmp_path: Path, name: str) -> None:
        """A `_` with a `=` is a partition value, and a dot inside hides nothing."""
        put(tmp_path / name)

        assert names(listed(tmp_path)) == [name]

    def test_size_and_time(self, tmp_path: Path) -> None:
        """A listed file has its size, and its time in milliseconds."""
        put(tmp_path / "a.json", "12345", mtime_ms=NOW_MS + 7)

        assert listed(tmp_path).files == [ListedFile(f"file://{tmp_path}/a.json", NOW_MS + 7, 5)]

    def test_seen_files_cost_no_stat(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the source has taken is left out before it is looked at."""
        put(tmp_path / "a.json")
        put(tmp_path / "b.json")
        looked_at: list[str] = []
        stat = _LocalFolder.stat
        monkeypatch.setattr(_LocalFolder, "stat", lambda self, name: (looked_at.append(name), stat(self, name))[1])

        assert names(listed(tmp_path, seen={f"file://{tmp_path}/a.json"})) == ["b.json"]
        assert looked_at == ["b.json"]

    def test_broken_link(self, tmp_path: Path) -> None:
        """A link to nothing is no file."""
        (tmp_path / "a.json").symlink_to("absent.json")

        assert listed(tmp_path).files == []

    def test_path_glob_filter(self, tmp_path: Path) -> None:
        """`pathGlobFilter` picks file names, not folders."""
        put(tmp_path / "d=1" / "a.json")
        put(tmp_path / "d=1" / "a.csv")

        assert names(listed(tmp_path, name_pattern=glob_pattern("*.json"))) == ["a.json"]

    def test_one_file(self, tmp_path: Path) -> None:
        """A path that names a single file is refused: Spark fails every batch of such a stream."""
        put(tmp_path / "a.json")

        with pytest.raises(DeclarationError, match="is a file"):
            listed(tmp_path / "a.json")

    def test_empty_folder(self, tmp_path: Path) -> None:
        """An empty folder has nothing yet."""
        assert listed(tmp_path).files == []

    def test_missing_folder(self, tmp_path: Path) -> None:
        """A folder that is not there is named; a mount may be back, or a producer make it: a retry may find it."""
        with pytest.raises(NotThereError, match="does not exist") as caught:
            listed(tmp_path / "absent")

        assert caught.value.retryable
        assert caught.value.where == f"{tmp_path}/absent"

    def test_file_url(self, tmp_path: Path) -> None:
        """A folder declared as a `file:` URL lists as its path does."""
        put(tmp_path / "a.json")
        listing = listed(f"file://{tmp_path}")

        assert [file.path for file in listing.files] == [f"file://{tmp_path}/a.json"]
        assert listing.problems == []

    def test_object_store(self, object_storage: Storage) -> None:
        """A folder in an object store lists with the URIs that Spark's log has."""
        object_storage.replace(f"{BUCKET}/landing/d=10%3A30/a b.json", b"123")
        listing = list_files(f"{BUCKET}/landing", Selection(), storage=object_storage)

        assert [file.path for file in listing.files] == [f"{BUCKET}/landing/d=10%253A30/a%20b.json"]
        assert listing.files[0].size_bytes == 3


class TestPartitions:
    """Hive partition folders."""

    def test_any_depth(self, tmp_path: Path) -> None:
        """Spark descends into `k=v` folders at any depth, and into every folder inside of those."""
        put(tmp_path / "year=2026" / "month=1" / "a.json")
        put(tmp_path / "year=2026" / "month=2" / "b.json")
        put(tmp_path / "year=2026" / "month=2" / "other" / "c.json")
        listing = listed(tmp_path)

        assert names(listing) == ["a.json", "b.json", "c.json"]
        assert listing.has_partitions

    def test_below_other_folders(self, tmp_path: Path) -> None:
        """Partitions may lie deeper, where no file lies above them."""
        put(tmp_path / "x" / "y" / "d=1" / "a.json")

        assert names(listed(tmp_path)) == ["a.json"]

    def test_no_deeper_search_beside_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A folder with files of its own costs one listing, whatever is archived below it."""
        put(tmp_path / "a.json")
        put(tmp_path / "archive" / "b.json")
        storage, listings = Storage(), []
        list_folder = storage.list_folder
        monkeypatch.setattr(storage, "list_folder", lambda folder: listings.append(folder) or list_folder(folder))
        list_files(str(tmp_path), Selection(), storage=storage)

        assert listings == [str(tmp_path)]

    def test_base_path(self, tmp_path: Path) -> None:
        """Below a `basePath`, what a glob names may be a partition itself."""
        put(tmp_path / "d=1" / "sub" / "a.json")

        assert names(listed(f"{tmp_path}/d=*")) == []
        assert names(listed(f"{tmp_path}/d=*", base_path=str(tmp_path))) == ["a.json"]

    def test_hidden_partition(self, tmp_path: Path) -> None:
        """A dot hides a folder, a `_` with `=` does not."""
        put(tmp_path / ".d=1" / "a.json")
        put(tmp_path / "_d=1" / "b.json")

        assert names(listed(tmp_path)) == ["b.json"]

    def test_stray_files(self, tmp_path: Path) -> None:
        """A file beside partitions, whose rows Spark would lose, is left out and reported without blocking."""
        put(tmp_path / "d=1" / "h=2" / "b.json")
        put(tmp_path / "stray.json")
        put(tmp_path / "_SUCCESS")
        listing = listed(tmp_path)

        assert names(listing) == ["b.json"]
        assert problems(listing) == [("FILE_BESIDE_PARTITIONS", f"{tmp_path}/stray.json")]
        assert not any(problem.is_blocking for problem in listing.problems)

    def test_filtered_stray_files(self, tmp_path: Path) -> None:
        """A file that `pathGlobFilter` leaves out is in nobody's way."""
        put(tmp_path / "d=1" / "a.json")
        put(tmp_path / "stray.csv")

        assert listed(tmp_path, name_pattern=glob_pattern("*.json")).problems == []

    def test_empty_partitions(self, tmp_path: Path) -> None:
        """Partition folders without a visible file make no stray files of the others."""
        (tmp_path / "d=1").mkdir()
        put(tmp_path / "d=2" / ".a.json.crc")
        put(tmp_path / "a.json")
        listing = listed(tmp_path)

        assert names(listing) == ["a.json"]
        assert listing.problems == []

    def test_taken_files_count_as_visible(self, tmp_path: Path) -> None:
        """A file beside partitions is stray also when everything in them was taken."""
        put(tmp_path / "d=1" / "a.json")
        put(tmp_path / "stray.json")
        listing = listed(tmp_path, seen={f"file://{tmp_path}/d=1/a.json"})

        assert problems(listing) == [("FILE_BESIDE_PARTITIONS", f"{tmp_path}/stray.json")]

    def test_recursive_lookup(self, tmp_path: Path) -> None:
        """With `recursiveFileLookup` every folder is searched and none is a partition."""
        put(tmp_path / "a.json")
        put(tmp_path / "d=1" / "b.json")
        put(tmp_path / "x" / "y" / "c.json")
        put(tmp_path / "_hidden" / "d.json")
        listing = listed(tmp_path, recursive=True)

        assert names(listing) == ["a.json", "b.json", "c.json"]
        assert listing.problems == []


class TestUnreadableNames:
    """Names that Spark's file source can't read."""

    def test_colon(self, tmp_path: Path) -> None:
        """A `:` in a name would stop the stream for ever: the file is left out and reported."""
        put(tmp_path / "10:30.json")
        put(tmp_path / "a.json")
        listing = listed(tmp_path)

        assert names(listing) == ["a.json"]
        assert problems(listing) == [("NAME_UNREADABLE", f"{tmp_path}/10:30.json")]
        assert not listing.problems[0].is_blocking

    @pytest.mark.parametrize("folder", ["d=10:30", "d=[1]", "d={a}"])
    def test_folder(self, tmp_path: Path, folder: str) -> None:
        """A `:` or a glob character in a partition folder's name does not keep Spark from reading it."""
        put(tmp_path / folder / "a.json")
        listing = listed(tmp_path)

        assert names(listing) == ["a.json"]
        assert listing.problems == []

    def test_folder_of_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        """Every file of a folder whose name is not UTF-8 is reported."""
        put(tmp_path / os.fsdecode(b"d=\xff") / "a.json")
        listing = listed(tmp_path)

        assert listing.files == []
        assert problems(listing) == [("NAME_UNREADABLE", f"{tmp_path}/d=\\udcff/a.json")]

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        """A name that is not UTF-8 is reported with its bytes spelled out."""
        (tmp_path / os.fsdecode(b"a\xff.json")).write_bytes(b"{}")
        put(tmp_path / "b.json")
        listing = listed(tmp_path)

        assert names(listing) == ["b.json"]
        assert problems(listing) == [("NAME_UNREADABLE", f"{tmp_path}/a\\udcff.json")]
        assert listing.problems[0].file.encode()


class TestGlob:
    """A path with a Hadoop glob."""

    def test_folders_and_files(self, tmp_path: Path) -> None:
        """A glob may name folders, whose files count, and files."""
        put(tmp_path / "2026-01" / "a.json")
        put(tmp_path / "2026-02" / "b.json")
        put(tmp_path / "2025-12" / "c.json")
        put(tmp_path / "2026-notes")
        listing = listed(f"{tmp_path}/2026-*")

        assert names(listing) == ["2026-notes", "a.json", "b.json"]

    def test_files_cost_one_listing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many files a glob matches, their folder is listed once."""
        for number in range(10):
            put(tmp_path / f"{number}.json")
        storage, listings = Storage(), []
        list_folder = storage.list_folder
        monkeypatch.setattr(storage, "list_folder", lambda folder: listings.append(folder) or list_folder(folder))

        assert len(list_files(f"{tmp_path}/*.json", Selection(), storage=storage).files) == 10
        assert listings == [str(tmp_path)]

    def test_in_the_middle(self, tmp_path: Path) -> None:
        """Every component may be a glob."""
        put(tmp_path / "eu" / "in" / "a.json")
        put(tmp_path / "us" / "in" / "b.json")
        put(tmp_path / "us" / "out" / "c.json")

        assert names(listed(f"{tmp_path}/{{eu,us}}/in/*.json")) == ["a.json", "b.json"]

    def test_hidden_file(self, tmp_path: Path) -> None:
        """A glob finds no hidden file."""
        put(tmp_path / ".a.json.crc")
        put(tmp_path / "a.json")

        assert names(listed(f"{tmp_path}/*")) == ["a.json"]

    def test_no_match(self, tmp_path: Path) -> None:
        """A glob that nothing matches yet is fine: files will come."""
        assert listed(f"{tmp_path}/absent/*.json").files == []

    def test_braces_around_a_slash(self, tmp_path: Path) -> None:
        """Hadoop expands braces around a `/`; here that is refused, lest its files be missed."""
        put(tmp_path / "a" / "b" / "c.json")

        with pytest.raises(DeclarationError, match="span a `/`"):
            listed(f"{tmp_path}/{{a/b,d}}/*.json")

    def test_escaped_brace(self, tmp_path: Path) -> None:
        r"""`\{` is a brace in a name, and the path goes on behind it."""
        put(tmp_path / "x{1" / "a.json")

        assert names(listed(f"{tmp_path}/x\\{{1/*")) == ["a.json"]

    @pytest.mark.parametrize("character", "*?[]{}\\")
    def test_is_glob(self, character: str) -> None:
        """Each of these makes Spark take a path as a glob."""
        assert is_glob(f"data/{character}x")
        assert not is_glob("data/x-%.,#~!")

    @pytest.mark.parametrize(
        ("glob", "matching", "others"),
        [
            ("*.json", ["a.json", ".json", "a\nb.json"], ["a.jsonl", "a_json"]),
            ("a?c", ["abc", "a.c"], ["ac", "abbc"]),
            ("[a-c]x", ["ax", "cx"], ["dx", "-x"]),
            ("[^a-c]x", ["dx"], ["ax"]),
            ("[!ab]x", ["cx", "!x"], ["ax", "bx"]),
            ("[]a]x", ["]x", "ax"], ["bx"]),
            ("[a-]x", ["ax", "-x"], ["bx"]),
            (r"[\]\-]x", ["]x", "-x"], ["\\x"]),
            ("[a&&b]x", ["ax", "bx", "&x"], ["cx"]),
            ("{a,bc}d", ["ad", "bcd"], ["abcd", "d"]),
            ("{a,{b,c}d}", ["a", "bd", "cd"], ["b", "d"]),
            ("a,b", ["a,b"], ["a", "b"]),
            ("a}", ["a}"], ["a"]),
            (r"\*\{x", ["*{x"], [r"\*\{x", "ab{x"]),
            ("a.b+c", ["a.b+c"], ["aXbbc"]),
        ],
    )
    def test_glob_pattern(self, glob: str, matching: list[str], others: list[str]) -> None:
        """A glob matches what Hadoop's does."""
        pattern = glob_pattern(glob)

        assert [name for name in matching + others if pattern.fullmatch(name)] == matching

    @pytest.mark.parametrize("glob", ["[a", "[", "[]", "{a,b", "{a", "x{", "[z-a]", "[a--]"])
    def test_malformed_glob(self, glob: str) -> None:
        """A glob that Hadoop could not read is refused, and shown."""
        with pytest.raises(DeclarationError) as caught:
            glob_pattern(glob)

        assert caught.value.where == glob

    @given(st.text("ab*?[]{}\\^!-,/&|~", max_size=12) | st.text(max_size=12))
    def test_any_glob(self, glob: str) -> None:
        """Any text is a pattern or refused, without warnings of the regular expressions."""
        assert isinstance(outcome(lambda: glob_pattern(glob)), re.Pattern | DeclarationError)


class TestFileUri:
    """URIs as Java's `Path.toUri` spells them."""

    @pytest.mark.parametrize(
        ("name", "spelled"),
        [
            ("plain-1_2.json", "plain-1_2.json"),
            ("a b", "a%20b"),
            ("50%", "50%25"),
            ("d=x%3Ay", "d=x%253Ay"),
            ("#1", "%231"),
            ("who?", "who%3F"),
            ("ü", "ü"),
            ("é", "é"),
            ("日本", "日本"),
            ("[1]", "%5B1%5D"),
            ("{a}", "%7Ba%7D"),
            ("a\\b", "a%5Cb"),
            ('"a"', "%22a%22"),
            ("<a>", "%3Ca%3E"),
            ("a^b|c`d", "a%5Eb%7Cc%60d"),
            ("~a", "~a"),
            ("a,b;c=d&e+f$g@h!i*j'(k)", "a,b;c=d&e+f$g@h!i*j'(k)"),
            ("a\u00a0b\u2003c", "a%C2%A0b%E2%80%83c"),
            ("a\tb\x7f\x85", "a%09b%7F%C2%85"),
            ("a:b", "a:b"),
        ],
    )
    def test_spelling(self, name: str, spelled: str) -> None:
        """Letters of any script stay; of ASCII, all but unreserved characters are percent-encoded."""
        assert file_uri(f"/data/{name}") == f"file:///data/{spelled}"

    def test_listing_spells_alike(self, tmp_path: Path) -> None:
        """A listed file has the URI that `file_uri` gives it, whatever its folder's name is."""
        odd = "d=ü %23 50%"
        for name in ("plain.json", "a b#?.json", "é,~.json"):
            put(tmp_path / odd / name)
        listing = listed(tmp_path)

        assert {file.path for file in listing.files} == {
            file_uri(f"{tmp_path}/{odd}/{name}") for name in os.listdir(tmp_path / odd)
        }
        assert f"file://{tmp_path}/d=ü%20%2523%2050%25/a%20b%23%3F.json" in {file.path for file in listing.files}

    def test_schemes(self) -> None:
        """S3 is s3a for Spark; other schemes keep their name."""
        assert file_uri("s3://bucket/a b") == "s3a://bucket/a%20b"
        assert file_uri("gs://bucket/ü") == "gs://bucket/ü"
        assert file_uri("file:///data/a%20b") == "file:///data/a%20b"

    @given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1, max_size=20))
    def test_reads_back(self, name: str) -> None:
        """A URI leads back to its file: encoding loses nothing."""
        assert local_path(file_uri(f"/data/{name}")) == f"/data/{name}"


@given(st.text(max_size=12))
def test_is_hidden_by_name_only(name: str) -> None:
    """Hidden is what begins with `.`, or `_` without `=`, or ends as a copy under way."""
    expected = name[:1] == "." or (name[:1] == "_" and "=" not in name) or name[-10:] == "._COPYING_"

    assert is_hidden(name) is expected

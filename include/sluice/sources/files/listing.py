"""The files below a source's path, as Spark's file source lists them, without its silent losses.

Spark takes the direct children of every folder that the path (or glob) names; or, where files lie below a Hive
partition folder (`k=v`) at any depth, every such file. Names that start with `_` or `.`, or end with `._COPYING_`, are
hidden. Names that Spark can't read are left out here and reported.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from sluice.errors import DeclarationError, NotThereError, Problem
from sluice.locations import is_local, is_within, join, local_path, real_location, spark_location
from sluice.storage import Folder, Storage

_GLOB = re.compile(r"[*?\[\]{}\\]")
_WRITTEN = [
    f"part-00000-0.c000{ending}"
    for ending in ("", ".json", ".csv", ".txt", ".orc", ".parquet", ".snappy.parquet", ".json.gz")
]
"""What Spark calls the files that it writes."""
_PLAIN = re.compile(r"[A-Za-z0-9._~/@!$&'()*+,;=-]*")
"""Names that a URI spells as they are (a `:` is refused before it gets here)."""


class ListedFile(msgspec.Struct, frozen=True, gc=False):
    """One file that Spark can read and has not taken yet. A msgspec struct: planning makes one per new file."""

    path: str
    """The file as Spark's source log spells it: a URI."""
    mtime_ms: int
    """When it was last modified, in milliseconds since the epoch."""
    size_bytes: int


class SeenNames:
    """Recognises a path by its last component."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._names = {file_name(path) for path in paths}

    def __contains__(self, path: object) -> bool:
        return file_name(str(path)) in self._names


def file_name(uri: str) -> str:
    """The last component of a path."""
    return uri.rpartition("/")[2]


@dataclass
class Listing:
    """The files below a path that a source has not taken yet."""

    files: list[ListedFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    has_partitions: bool = False
    """Whether the files are those of Hive partition folders."""


@dataclass(frozen=True)
class Selection:
    """Which of the files below a path a source wants."""

    seen: Container[str] = ()
    """URIs that the source has taken; they cost no stat."""
    recursive: bool = False
    """Spark's `recursiveFileLookup`: every folder is searched, none is a partition."""
    name_pattern: re.Pattern[str] | None = None
    """Spark's `pathGlobFilter`, compiled: what file names must match."""
    base_path: str | None = None
    """Spark's `basePath`: partition folders count from here on, also those that the path itself names."""
    within: str | None = None
    """A local folder that what a glob matches may not leave through a link; None for no such limit."""


def list_files(path: str, selection: Selection, *, storage: Storage) -> Listing:
    """List a source's path.

    Args:
        path: A folder or a Hadoop glob, as a location.
        selection: Which files are wanted.
        storage: Where to list.

    Raises:
        NotThereError: A path that is no glob names nothing.
        DeclarationError: It names a file; or a glob matches what it may not.
        StorageError: A folder can't be listed.
    """
    roots = list(_matches(path, storage)) if is_glob(path) else [_folder(path, storage)]
    for root in roots:
        if selection.within is not None and not is_within(root.location, selection.within):
            raise DeclarationError(
                f"the glob {path!r} matches a folder that a link puts outside of the project",
                where=root.location,
                remedy="write the absolute path if that is what you mean, or remove the link",
            )
    leaves = [leaf for root in roots for leaf in _leaves(root, selection, storage)]
    listing = Listing(has_partitions=any(leaf.is_partition for leaf in leaves))
    for leaf in leaves:
        if leaf.is_partition or selection.recursive or (leaf.is_root and not listing.has_partitions):
            _add(listing, leaf, selection)
        elif listing.has_partitions:
            _report_strays(listing, leaf, selection)
    return listing


def is_glob(path: str) -> bool:
    """Whether Spark takes a path as a glob."""
    return _GLOB.search(path) is not None


def fixed_part(path: str) -> str:
    """What a path names before its first component that is a glob; the whole path where none is."""
    components = _split_components(path)
    return "/".join(components[: _first_glob(components)])


def is_listed(path: str, place: str, *, recursive: bool) -> bool:
    """Whether files that Spark writes into a folder would be those of a source's path.

    Args:
        path: A folder or a Hadoop glob, as a location.
        place: The folder, as a location.
        recursive: Whether every folder is searched.
    """
    components = _split_components(path)
    patterns = components[_first_glob(components) :]
    base, folder = real_location(fixed_part(path)), real_location(place)
    if not f"{folder}/".startswith(join(base, "")):
        return False
    names = list(filter(None, folder[len(base) :].split("/")))
    if any(map(is_hidden, names)):
        return False
    found = [[*names, file] for file in _WRITTEN] if len(names) < len(patterns) else [names]
    is_matched = any(_match(patterns, path) for path in found)
    return is_matched and (recursive or all("=" in name for name in names[len(patterns) :]))


def _match(patterns: Sequence[str], names: Sequence[str]) -> bool:
    is_deep = len(names) >= len(patterns)
    return is_deep and all(glob_pattern(glob).fullmatch(name) for glob, name in zip(patterns, names, strict=False))


def is_hidden(name: str) -> bool:
    """Whether Spark passes over a file or folder of this name."""
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")


def file_uri(path: str) -> str:
    """Spell a location as Java's `Path.toUri` does.

    Percent-encoded are all but unreserved characters, non-ASCII letters and `/:@!$&'()*+,;=~`.
    """
    prefix, path = ("file://", local_path(path)) if is_local(path) else _split_scheme(spark_location(path))
    return prefix + (path if _PLAIN.fullmatch(path) else "".join(map(_encoded, path)))


def glob_pattern(glob: str) -> re.Pattern[str]:
    r"""Compile one path component of a Hadoop glob: `*`, `?`, `[a-c]`, `[^a]`, `{a,b}`, `\x`.

    Raises:
        DeclarationError: A bracket or brace is not closed.
    """
    pattern, rest, depth = "", glob, 0
    while rest:
        token = _GLOB_TOKEN.match(rest)
        text = token[0] if token else rest[0]
        if text == "\\":
            raise DeclarationError("a backslash stands at the end", where=glob, remedy="leave it out, or write `\\\\`")
        rest = rest[len(text) :]
        if text == "[":
            raise DeclarationError("a `[` is not closed", where=glob, remedy="close it, or write `\\[`")
        pattern += _token_pattern(text, in_braces=depth > 0)
        depth += {"{": 1, "}": -1 if depth else 0}.get(text, 0)
    if depth:
        raise DeclarationError("a `{` is not closed", where=glob, remedy="close it, or write `\\{`")
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as exc:
        raise DeclarationError(
            f"the glob is not right: {exc.msg}", where=glob, remedy="write a range as `[a-z]`, in this order"
        ) from exc


_GLOB_TOKEN = re.compile(r"\\.|\[[!^]?(?:\\.|[^\\])(?:\\.|[^\]\\])*\]", re.DOTALL)
_SET_MEMBER = re.compile(r"\\?(.)(?:-\\?(.))?", re.DOTALL)


def _token_pattern(text: str, *, in_braces: bool) -> str:
    if text.startswith("\\") and len(text) == 2:
        return re.escape(text[1])
    if text.startswith("[") and len(text) > 1:
        is_negated = text[1] in "!^" and len(text) > 3
        members = text[2:-1] if is_negated else text[1:-1]
        ranges = ["-".join(re.escape(end) for end in match.groups() if end) for match in _SET_MEMBER.finditer(members)]
        return f"[{'^' if is_negated else ''}{''.join(ranges)}]"
    always = {"*": ".*", "?": ".", "{": "(?:"}
    grouping = {"}": ")", ",": "|"} if in_braces else {}
    return always.get(text) or grouping.get(text) or re.escape(text)


@dataclass(frozen=True)
class _Leaf:
    """A folder that holds visible files, or that the path names."""

    location: str
    folder: Folder
    names: list[str]
    """Its files, or those of them that a glob matches."""
    inner: list[str]
    """The folders in it; none where a glob matches files only."""
    is_root: bool
    """Whether the path names it, or its files."""
    is_partition: bool = False
    """Whether it is a partition folder, or lies in one."""


def _folder(path: str, storage: Storage) -> _Leaf:
    folder = storage.list_folder(path)
    if folder is not None:
        return _Leaf(path, folder, folder.files, folder.folders, is_root=True)
    if storage.stat(path) is not None:
        raise DeclarationError(
            "the source's path is a file, which Spark does not stream",
            where=path,
            remedy="give its folder, with `path_glob_filter` for the name",
        )
    raise NotThereError("the source's path does not exist", where=path, remedy="create the folder, or correct the path")


def _matches(path: str, storage: Storage) -> Iterator[_Leaf]:
    """Every folder that a glob matches, and every folder with files that it matches."""
    components = _split_components(path)
    if any("/" in component for component in components):
        raise DeclarationError(
            "braces in a glob span a `/`", where=path, remedy="write `/` outside of braces only: `{a,b}/c`"
        )
    fixed = _first_glob(components)
    yield from _matches_below("/".join(components[:fixed]), components[fixed:], storage)


def _first_glob(components: list[str]) -> int:
    globs = (index for index, component in enumerate(components) if is_glob(component))
    return next(globs, len(components))


def _matches_below(parent: str, components: list[str], storage: Storage) -> Iterator[_Leaf]:
    folder = storage.list_folder(parent or "/")
    if folder is None:
        return
    pattern, rest = glob_pattern(components[0]), components[1:]
    for name in sorted(folder.folders):
        if pattern.fullmatch(name) and rest:
            yield from _matches_below(join(parent, name), rest, storage)
        elif pattern.fullmatch(name):
            inside = storage.list_folder(join(parent, name))
            if inside is not None:
                yield _Leaf(join(parent, name), inside, inside.files, inside.folders, is_root=True)
    names = [] if rest else [name for name in folder.files if pattern.fullmatch(name)]
    if names:
        yield _Leaf(parent, folder, names, [], is_root=True)


def _split_components(path: str) -> list[str]:
    """Split at every `/` that is not inside braces."""
    components, depth = [""], 0
    for text in _PATH_TOKEN.findall(path):
        depth = max(0, depth + {"{": 1, "}": -1}.get(text, 0))
        if text == "/" and not depth:
            components.append("")
        else:
            components[-1] += text
    return components


_PATH_TOKEN = re.compile(r"\\.|.", re.DOTALL)


def _leaves(top: _Leaf, selection: Selection, storage: Storage) -> list[_Leaf]:
    """A folder and those below it that hold visible files, as far down as Spark could want them."""
    base = selection.base_path
    above = top.location[len(base) :] if base is not None and top.location.startswith(base) else ""
    is_partition = top.is_partition or (top.is_root and "=" in above)
    leaves = []
    if not all(map(is_hidden, top.names)):
        leaves.append(replace(top, is_partition=is_partition))
    inner = sorted(name for name in top.inner if not is_hidden(name))
    takes_all = is_partition or selection.recursive
    for name in inner:
        if takes_all or "=" in name:
            leaves += _below(top, name, selection, storage, is_partition=is_partition or "=" in name)
    if not leaves and not takes_all:
        # Partitions may lie deeper; beside other files, Spark would refuse them.
        for name in inner:
            leaves += _below(top, name, selection, storage, is_partition=False)
    return leaves


def _below(top: _Leaf, name: str, selection: Selection, storage: Storage, *, is_partition: bool) -> list[_Leaf]:
    location = join(top.location, name)
    folder = storage.list_folder(location)
    if folder is None:
        return []
    leaf = _Leaf(location, folder, folder.files, folder.folders, is_root=False, is_partition=is_partition)
    return _leaves(leaf, selection, storage)


def _add(listing: Listing, leaf: _Leaf, selection: Selection) -> None:
    # This loop runs once per file of the landing folder, at every plan: it is what planning costs.
    base, is_readable = file_uri(join(leaf.location, "")), _is_text(leaf.location)
    seen, name_pattern, stat = selection.seen, selection.name_pattern, leaf.folder.stat
    append = listing.files.append
    are_plain = _PLAIN.fullmatch("".join(leaf.names)) is not None
    for name in leaf.names:
        if are_plain or _PLAIN.fullmatch(name):
            path, is_usable = base + name, is_readable
        else:
            path = base + "".join(map(_encoded, name))
            is_usable = is_readable and ":" not in name and _is_text(name)
        if path in seen or (name[0] in "_." and is_hidden(name)) or name.endswith("._COPYING_"):
            continue
        if name_pattern is not None and not name_pattern.fullmatch(name):
            continue
        if not is_usable:
            listing.problems.append(_unreadable(join(leaf.location, name)))
        elif (found := stat(name)) is not None:
            append(ListedFile(path, found.mtime_ms, found.size_bytes))


def _report_strays(listing: Listing, leaf: _Leaf, selection: Selection) -> None:
    pattern = selection.name_pattern
    strays = [name for name in leaf.names if not is_hidden(name) and (pattern is None or pattern.fullmatch(name))]
    listing.problems += [_stray(join(leaf.location, name)) for name in sorted(strays)]


def _encoded(character: str) -> str:
    if character in _PLAIN_CHARACTERS or character == ":":
        return character
    if character.isascii() or unicodedata.category(character) in {"Zs", "Zl", "Zp", "Cc"}:
        return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogateescape"))
    return character


_PLAIN_CHARACTERS = frozenset(chr(code) for code in range(128) if _PLAIN.fullmatch(chr(code)))


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _split_scheme(location: str) -> tuple[str, str]:
    scheme, _, rest = location.partition("://")
    bucket, slash, key = rest.partition("/")
    return f"{scheme}://{bucket}", slash + key


def _unreadable(path: str) -> Problem:
    return Problem(
        code="NAME_UNREADABLE",
        file=path.encode(errors="backslashreplace").decode(),
        cause="Spark's file source can't read a file of this name (a `:`, or a byte that is no UTF-8)",
        consequence="left in, it would stop the stream for ever or be passed over; Sluice leaves it out",
        remedy="rename it",
        is_blocking=False,
    )


def _stray(path: str) -> Problem:
    return Problem(
        code="FILE_BESIDE_PARTITIONS",
        file=path,
        cause="the file lies beside Hive partition folders (`k=v`)",
        consequence="Spark would lose its rows, or fail the stream over it; Sluice leaves it out",
        remedy="move it into a partition folder, or away",
        is_blocking=False,
    )

"""The files below a source's path, as Spark's file source lists them, without its silent losses.

Spark takes the direct children of every folder that the path (or glob) names, or, where there are Hive partition
folders (`k=v`), the files inside those, at any depth. Names that start with `_` or `.`, or end with `._COPYING_`,
are hidden. Names that Spark can't read are left out here and reported.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

import msgspec

from sluice.errors import DeclarationError, Problem
from sluice.storage import Folder, Storage, is_local, join, local_path, spark_location

_GLOB = re.compile(r"[*?\[\]{}\\]")
_PLAIN = re.compile(r"[A-Za-z0-9._~/@!$&'()*+,;=-]*")
"""Names that a URI spells as they are (a `:` is refused before it gets here)."""


class ListedFile(msgspec.Struct, frozen=True, gc=False):
    """One file that Spark can read and has not taken yet. A msgspec struct: planning makes one per new file."""

    path: str
    """The file as Spark's source log spells it: a URI."""
    mtime_ms: int
    """When it was last modified, in milliseconds since the epoch."""
    size_bytes: int


@dataclass
class Listing:
    """The files below a path that a source has not taken yet."""

    files: list[ListedFile] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    """The folders and files that the path names: one, unless it is a glob."""


@dataclass(frozen=True)
class Selection:
    """Which of the files below a path a source wants."""

    seen: Container[str] = ()
    """URIs that the source has taken; they cost no stat."""
    recursive: bool = False
    """Spark's `recursiveFileLookup`: every folder is searched, none is a partition."""
    name_pattern: re.Pattern[str] | None = None
    """Spark's `pathGlobFilter`, compiled: what file names must match."""


def list_files(path: str, selection: Selection, *, storage: Storage) -> Listing:
    """List a source's path.

    Args:
        path: A folder, a file or a Hadoop glob, as a location.
        selection: Which files are wanted.
        storage: Where to list.

    Raises:
        DeclarationError: There is nothing at a path that is no glob.
        StorageError: A folder can't be listed.
    """
    listing = Listing()
    for parent, name, folder in _roots(path, storage):
        root = join(parent, name) if name else parent
        listing.roots.append(root)
        if folder is not None:
            _list_root(root, folder, listing, selection, storage)
        else:
            siblings = storage.list_folder(parent)
            if siblings is not None:
                _add(listing, parent, siblings, [name], selection)
    if not listing.roots and not is_glob(path):
        raise DeclarationError(
            "the source's path does not exist", where=path, remedy="create the folder, or correct the path"
        )
    return listing


def is_glob(path: str) -> bool:
    """Whether Spark takes a path as a glob."""
    return _GLOB.search(path) is not None


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


def _roots(path: str, storage: Storage) -> Iterator[tuple[str, str, Folder | None]]:
    """Every match of a path as (parent, name, folder); the folder is None for a file."""
    if not is_glob(path):
        folder = storage.list_folder(path)
        if folder is not None:
            yield path, "", folder
        elif storage.stat(path) is not None:
            parent, _, name = path.rpartition("/")
            yield parent, name, None
        return
    components = _split_components(path)
    if any("/" in component for component in components):
        raise DeclarationError(
            "braces in a glob span a `/`", where=path, remedy="write `/` outside of braces only: `{a,b}/c`"
        )
    fixed = next(index for index, component in enumerate(components) if is_glob(component))
    yield from _matches("/".join(components[:fixed]), components[fixed:], storage)


def _matches(parent: str, components: list[str], storage: Storage) -> Iterator[tuple[str, str, Folder | None]]:
    folder = storage.list_folder(parent or "/")
    if folder is None:
        return
    pattern, rest = glob_pattern(components[0]), components[1:]
    for name in sorted(folder.folders):
        if pattern.fullmatch(name):
            if rest:
                yield from _matches(join(parent, name), rest, storage)
            else:
                inside = storage.list_folder(join(parent, name))
                if inside is not None:
                    yield parent, name, inside
    if not rest:
        for name in sorted(folder.files):
            if pattern.fullmatch(name):
                yield parent, name, None


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


def _list_root(root: str, folder: Folder, listing: Listing, selection: Selection, storage: Storage) -> bool:
    """Add what a root holds; tells whether it holds any visible file, taken or not."""
    inner = [name for name in folder.folders if not is_hidden(name) and (selection.recursive or "=" in name)]
    has_partitions = False
    for name in sorted(inner):
        below = storage.list_folder(join(root, name))
        if below is not None:
            has_partitions |= _list_root(join(root, name), below, listing, selection, storage)
    if has_partitions and not selection.recursive:
        stray = [name for name in folder.files if not is_hidden(name)]
        listing.problems += [_stray(join(root, name)) for name in sorted(stray)]
        return True
    _add(listing, root, folder, folder.files, selection)
    return has_partitions or any(not is_hidden(name) for name in folder.files)


def _add(listing: Listing, parent: str, folder: Folder, names: list[str], selection: Selection) -> None:
    # This loop runs once per file of the landing folder, at every plan: it is what planning costs.
    base = file_uri(join(parent, ""))
    is_readable = not is_glob(parent) and not (is_local(parent) and ":" in local_path(parent))
    seen, name_pattern, is_plain, stat = selection.seen, selection.name_pattern, _PLAIN.fullmatch, folder.stat
    append = listing.files.append
    for name in names:
        if is_plain(name):
            path, is_usable = base + name, is_readable
        else:
            path = base + "".join(map(_encoded, name))
            is_usable = is_readable and ":" not in name and _is_text(name)
        if path in seen or (name[0] in "_." and is_hidden(name)) or name.endswith("._COPYING_"):
            continue
        if name_pattern is not None and not name_pattern.fullmatch(name):
            continue
        if not is_usable:
            listing.problems.append(_unreadable(join(parent, name)))
        elif (found := stat(name)) is not None:
            append(ListedFile(path, found.mtime_ms, found.size_bytes))


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
        cause="Spark's file source can't read a file of this name (a `:`, a byte that is no UTF-8, or a glob character"
        " in a folder's name)",
        consequence="left in, it would stop the stream for ever or be passed over; Sluice leaves it out",
        remedy="rename it",
        is_blocking=False,
    )


def _stray(path: str) -> Problem:
    return Problem(
        code="FILE_BESIDE_PARTITIONS",
        file=path,
        cause="the file lies beside Hive partition folders (`k=v`)",
        consequence="Spark would fail the stream over it; Sluice leaves it out",
        remedy="move it into a partition folder, or away",
        is_blocking=False,
    )

"""`spark-pipeline.yml`: which files define a pipeline, and where Spark keeps its checkpoints."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluice.errors import DeclarationError

SPEC_NAMES = ("spark-pipeline.yaml", "spark-pipeline.yml")
"""As `spark-pipelines` looks for them."""
_FIELDS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
_MOST_BYTES = 1_000_000
_MOST_DEPTH = 20


@dataclass(frozen=True)
class PipelineSpec:
    """What a spec says."""

    file: str
    name: str
    storage: str
    """Where checkpoints are: a location."""
    catalog: str | None
    database: str | None
    libraries: tuple[str, ...]
    """Patterns of the files that define the pipeline, from the spec's folder."""
    configuration: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def root(self) -> str:
        """The folder of the spec."""
        return str(Path(self.file).parent)

    def files(self) -> list[str]:
        """The files that define the pipeline, sorted.

        Raises:
            DeclarationError: A pattern finds none.
        """
        found: list[str] = []
        for pattern in self.libraries:
            whole = f"{pattern}/*" if pattern.endswith("/**") else pattern
            names = sorted(str(path) for path in Path(self.root).glob(whole) if path.is_file())
            names = [name for name in names if "__pycache__" not in Path(name).parts]
            if not names:
                raise DeclarationError(
                    f"no file is at `{pattern}`, where `libraries` says that the pipeline is defined",
                    where=self.file,
                    remedy="correct it, or put a .py or .sql file there",
                )
            found += names
        return list(dict.fromkeys(found))


def find_spec(folder: Path) -> Path | None:
    """The spec that lies in a folder; None where none does.

    Raises:
        DeclarationError: There are two.
    """
    found = [folder / name for name in SPEC_NAMES if (folder / name).is_file()]
    if len(found) > 1:
        raise DeclarationError(
            f"there are two specs of a pipeline: {' and '.join(SPEC_NAMES)}",
            where=str(folder),
            remedy="keep one: `spark-pipelines` refuses both",
        )
    return found[0] if found else None


def read_spec(file: Path) -> PipelineSpec:
    """Read a spec as `spark-pipelines` does, which has the same fields.

    Raises:
        DeclarationError: It can't be read, or a field is not what it must be.
    """
    place = str(file)
    given = _parsed(file)
    for key in given:
        if key not in _FIELDS:
            raise DeclarationError(
                f"unknown field {str(key)[:80]!r}", where=place, remedy=f"valid are: {', '.join(_FIELDS)}"
            )
    for key in ("name", "storage"):
        if key not in given:
            raise DeclarationError(f"`{key}` is missing", where=place, remedy="`spark-pipelines` wants it, too: add it")
    texts = {key: given.get(key) for key in ("name", "storage", "catalog", "database", "schema")}
    for key, value in texts.items():
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise DeclarationError(f"`{key}` is {_shown(value)}", where=place, remedy="give a string")
    return PipelineSpec(
        file=place,
        name=str(texts["name"]),
        storage=_storage(str(texts["storage"]), place),
        catalog=texts["catalog"],
        database=texts["database"] or texts["schema"],
        libraries=tuple(_libraries(given.get("libraries", []), place)),
        configuration=_configuration(given.get("configuration", {}), place),
    )


def _parsed(file: Path) -> Mapping[Any, Any]:
    try:
        import yaml
    except ImportError as exc:
        raise DeclarationError(
            "reading a pipeline's spec needs PyYAML, which is not installed",
            where=str(file),
            remedy='install "sluice-streaming[spark]"',
        ) from exc
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise DeclarationError(
                f"the spec has more than {_MOST_BYTES:,} bytes", where=str(file), remedy="shorten it"
            )
        text = content.decode("utf-8-sig")
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            # One that is used again and again makes terabytes of a few lines; no spec needs one.
            if isinstance(event, yaml.AliasEvent):
                raise DeclarationError("the spec has an alias (`*name`)", where=str(file), remedy="write the value out")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MOST_DEPTH:
                raise DeclarationError(
                    "the file does not parse: it is nested too deep", where=str(file), remedy="correct the YAML"
                )
        found = yaml.safe_load(text)
    except UnicodeDecodeError as exc:
        raise DeclarationError("the file is no UTF-8", where=str(file), remedy="save it as UTF-8") from exc
    except (OSError, yaml.YAMLError, RecursionError, ValueError) as exc:
        said = " ".join(str(exc).split())[:300]
        raise DeclarationError(f"the file does not parse: {said}", where=str(file), remedy="correct the YAML") from exc
    if not isinstance(found, Mapping):
        raise DeclarationError(
            f"the spec is {_shown(found)}", where=str(file), remedy="write fields: `name: ...`, `storage: ...`"
        )
    return found


def _storage(given: str, place: str) -> str:
    if "://" in given or given.startswith("file:/"):
        return given.rstrip("/")
    if not given.startswith("/"):
        raise DeclarationError(
            f"`storage` is the relative path {given!r}, which Spark takes from wherever it is started",
            where=place,
            remedy="write an absolute path or a URL",
        )
    return given.rstrip("/") or "/"


def _libraries(given: object, place: str) -> list[str]:
    entries: Sequence[object] = given if isinstance(given, list) else [None]
    patterns: list[str] = []
    for entry in entries:
        inner = entry.get("glob") if isinstance(entry, Mapping) else None
        pattern = inner.get("include") if isinstance(inner, Mapping) else None
        if not isinstance(pattern, str) or not pattern:
            raise DeclarationError(
                "`libraries` is no list of patterns",
                where=place,
                remedy="write each as `- glob:` with `include: transformations/**` below it",
            )
        prefix = pattern.removesuffix("/**")
        if glob.has_magic(prefix) or pattern.startswith("/"):
            raise DeclarationError(
                f"`libraries` has the pattern {pattern!r}",
                where=place,
                remedy="name a file, or a folder with `/**` after it, below the spec's folder",
            )
        patterns.append(pattern)
    if not patterns:
        raise DeclarationError(
            "`libraries` is missing: no file defines the pipeline",
            where=place,
            remedy="add `libraries:`, and below it `- glob:` with `include: transformations/**`",
        )
    return patterns


def _configuration(given: object, place: str) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise DeclarationError(
            f"`configuration` is {_shown(given)}", where=place, remedy="give settings by their names"
        )
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            # What it is may be a secret.
            kind = type(value).__name__
            raise DeclarationError(
                f"`{key}` in `configuration` is a {kind}", where=place, remedy="give a string: put it in quotes"
            )
    return dict(given)


def _shown(value: object) -> str:
    return "empty" if value is None else f"a {type(value).__name__}"

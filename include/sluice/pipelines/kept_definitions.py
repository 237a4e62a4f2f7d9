"""What the Python files of a pipeline define, kept in the home: to run them takes a second, and a plan has not that."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
from collections.abc import Mapping, Sequence

import msgspec

from sluice.documents import Document, encode_document, read_document
from sluice.errors import RefusedError, StorageError
from sluice.pipelines.definitions import Defined, define
from sluice.pipelines.elements import Elements
from sluice.pipelines.spec import PipelineSpec
from sluice.redaction import is_secret_name, redacted, secrets_of_url
from sluice.storage import Storage

logger = logging.getLogger(__name__)


class _Kept(Document, frozen=True, kw_only=True):
    if_lost = "delete it: the next plan writes it anew"
    spec: str
    python: tuple[str, str]
    """Its version, and where it looks for modules."""
    conf: str
    """A digest of the settings that the files may ask for."""
    defined: Defined


def defined_by(
    spec: PipelineSpec, files: Sequence[str], conf: Mapping[str, str], location: str, storage: Storage
) -> dict[str, Elements]:
    """What the Python files of a pipeline define, by file: as kept, if all that they read then is as it was.

    Args:
        spec: The pipeline.
        files: Its Python files.
        conf: The settings that they may ask for.
        location: Where it is kept.
        storage: Reads and writes there.

    Raises:
        DeclarationError: See `define`.
    """
    if not files:
        return {}
    python = platform.python_version(), os.environ.get("PYTHONPATH", "")
    settings = hashlib.sha256(msgspec.json.encode(sorted(conf.items()))).hexdigest()
    kept, asked = _read(location, storage), (spec.file, python, settings, list(files))
    if kept is not None and (kept.spec, kept.python, kept.conf, list(kept.defined.elements)) == asked:
        return kept.defined.elements
    found = define(spec.root, files, conf)
    if _may_be_kept(found):
        try:
            document = _Kept(spec=spec.file, python=python, conf=settings, defined=found)
            storage.replace_aid(location, encode_document(document))
        except StorageError:
            # Whoever may only read the home may plan.
            logger.info("what the pipeline defines can't be kept", exc_info=True)
    return found.elements


def _read(location: str, storage: Storage) -> _Kept | None:
    """What is kept, if it holds still: a file that is damaged, or somebody else's, tells nothing."""
    try:
        kept = read_document(storage, location, _Kept)
    except (RefusedError, StorageError):
        return None
    return kept if kept is not None and _is_whole(kept.defined) and kept.defined.inputs.is_same() else None


def _is_whole(defined: Defined) -> bool:
    """Whether each element is told of the file that it is kept under: the file of a flow is run as code."""
    files = {
        file: {*(output.file for output in found.outputs), *(flow.file for flow in found.flows)}
        for file, found in defined.elements.items()
    }
    return all(told <= {file} for file, told in files.items())


def _may_be_kept(found: Defined) -> bool:
    """Not where a file fails, which somebody mends now; nor where there is a secret; nor what has changed meanwhile."""
    elements = found.elements.values()
    flows = [flow for one in elements for flow in one.flows]
    options = [output.options for one in elements for output in one.outputs]
    options += [flow.conf for flow in flows] + [read.options for flow in flows for read in flow.reads]
    paths = [path for flow in flows for read in flow.reads for path in read.paths]
    values = [*paths, *(value for one in options for value in one.values())]
    return (
        all(one.error is None for one in elements)
        and all(flow.error is None for flow in flows)
        and not any(is_secret_name(name) for one in options for name in one)
        and not any(redacted(value) != value or any(secrets_of_url(value)) for value in values)
        and found.inputs.is_same()
    )

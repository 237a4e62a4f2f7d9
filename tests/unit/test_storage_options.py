"""What is said of the settings in `[storage]` is what obstore says when it opens a store."""

from __future__ import annotations

import re
from pathlib import Path

import obstore
import obstore.store
import pytest

from sluice.errors import DeclarationError
from sluice.project import load_project
from sluice.storage import Storage
from sluice.storage_options import _PREFIXES, CLIENT_OPTIONS, STORE_OPTIONS, check_storage_options
from tests.builders import put

URLS = {"aws_": "s3://bucket/key", "google_": "gs://bucket/key", "azure_": "az://bucket/key"}
VALUES = {
    "write true or false": (["true", "NO", "on", "1", "y"], ["yes please", "t", ""]),
    'write a number and a unit, as "30s" or "5m"': (["30s", "1 minute", "1h30m", "500ms", "1.5s"], ["soon", "30", ""]),
    "write a whole number": (["3"], ["many", "-1", "1.5"]),
}
PUBLISHED = {
    "_aws.pyi": "S3Config",
    "_gcs.pyi": "GCSConfig",
    "_azure.pyi": "AzureConfig",
    "_client.pyi": "ClientConfig",
}


def store_of(url: str, options: dict[str, str]) -> str | None:
    """What is wrong with the settings, to obstore; None when nothing is."""
    try:
        Storage(options)._object(url)
    except Exception as exc:
        return str(exc)
    return None


@pytest.mark.parametrize("name", CLIENT_OPTIONS)
def test_the_client(name: str) -> None:
    """A setting of the client is taken and refused as obstore takes and refuses it."""
    check = CLIENT_OPTIONS[name]
    if name in {"root_certificate", "proxy_ca_certificate"}:
        return
    for taken, refused in [VALUES.get(check("?") or "", (["text/plain"], []))]:
        for value in taken:
            assert check(value) is None
            assert store_of("s3://bucket/key", {"region": "x", name: value}) is None
        for value in refused:
            assert check(value) is not None
            assert store_of("s3://bucket/key", {"region": "x", name: value}) is not None


@pytest.mark.parametrize("name", STORE_OPTIONS)
def test_the_stores(name: str) -> None:
    """Every setting of a store is one of obstore's, for a cloud at least, and so are its booleans."""
    urls = [url for cloud, url in URLS.items() if name.startswith(cloud)] or list(URLS.values())
    said = [store_of(url, {name: "true"}) or "" for url in urls]
    assert not all("is not valid for store" in text or "Panic" in text for text in said)
    if STORE_OPTIONS[name]("?") == "write true or false":
        assert all(store_of(url, {name: "perhaps"}) for url in urls)


@pytest.mark.parametrize(("file", "kind"), PUBLISHED.items())
def test_none_is_missing(file: str, kind: str) -> None:
    """Every setting that obstore publishes is known; but those that are no texts, or that it refuses."""
    text = (Path(obstore.__file__).parent / "_store" / file).read_text("utf-8")
    body = re.split(rf"class {kind}\(TypedDict, total=False\):", text)[1].split("\nclass ")[0]
    names = set(re.findall(r"^    ([a-z_0-9]+):", body, re.MULTILINE))
    known = {*CLIENT_OPTIONS, *STORE_OPTIONS}
    refused = {name for name in names if store_of("s3://bucket/key", {"region": "x", name: "true"})}
    assert names - known <= refused | {"default_headers"}


@pytest.mark.parametrize("endpoint", ["not a url", "localhost:9000", "https://", "s3.amazonaws.com"])
def test_endpoints(endpoint: str, capfd: pytest.CaptureFixture[str]) -> None:
    """An endpoint that is no URL ends in a panic of obstore's, with a dump: it is refused before."""
    store = obstore.store.from_url(
        "s3://bucket", region="x", endpoint=endpoint, access_key_id="a", secret_access_key="b"
    )
    with pytest.raises(BaseException, match="InvalidUri"):
        obstore.head(store, "key")
    assert "panicked" in capfd.readouterr().err
    with pytest.raises(DeclarationError, match="`endpoint` is"):
        check_storage_options({"endpoint": endpoint}, "here")


def test_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint without TLS has to be allowed, by a setting or by the environment."""
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    with pytest.raises(DeclarationError, match="http://"):
        check_storage_options({"endpoint": "http://127.0.0.1:1"}, "here")
    check_storage_options({"endpoint": "http://127.0.0.1:1", "allow_http": "true"}, "here")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    check_storage_options({"endpoint": "http://127.0.0.1:1"}, "here")


def test_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Booleans and numbers need no quotes, names may be in capitals, and values may come from the environment."""
    monkeypatch.setenv("S3_ENDPOINT", "https://s3.example.com")
    text = 'storage = {AWS_ENDPOINT = "${S3_ENDPOINT}", allow_http = true, pool_max_idle_per_host = 3}'
    assert load_project(put(tmp_path / "sluice.toml", text)).storage_options == {
        "aws_endpoint": "https://s3.example.com",
        "allow_http": "true",
        "pool_max_idle_per_host": "3",
    }


def test_a_secret_is_not_shown() -> None:
    """A value that may be a secret is not in the message."""
    with pytest.raises(DeclarationError) as caught:
        check_storage_options({"skip_signature": "c4nary"}, "here")
    assert "c4nary" not in str(caught.value)


def test_clouds() -> None:
    """The names with a cloud in front are those without one."""
    assert set(_PREFIXES) == {"aws_", "google_", "azure_", "azure_storage_"}


@pytest.mark.parametrize("name", ["aws_access_key_id", "aws_session_token", "aws_secret_access_key", "region"])
def test_line_breaks(name: str) -> None:
    """As from a file that was read whole: in a header of HTTP it ends in a panic of Rust's. No secret is told."""
    with pytest.raises(DeclarationError, match="write it in one line") as refused:
        check_storage_options({name: "c4nary\n"}, "here")
    assert name in str(refused.value)
    assert ("c4nary" in str(refused.value)) == (name == "region")

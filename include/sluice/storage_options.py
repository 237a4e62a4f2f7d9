"""The settings of object stores, and of the HTTP client that reads them: their names, and what each may be.

obstore and delta-rs check them when a store is opened, some by a panic. What is said here of a setting, obstore says
too; a test compares.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from sluice.errors import DeclarationError
from sluice.option_values import Check, any_text, one_of
from sluice.redaction import is_secret_name

_DURATION = re.compile(
    r"(\d+(\.\d+)?\s*(ns|nsec|us|usec|ms|msec|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?|M|months?"
    r"|y|years?)\s*)+"
)


def _boolean(value: str) -> str | None:
    is_known = value.lower() in {"true", "yes", "on", "1", "y", "false", "no", "off", "0", "n"}
    return None if is_known else "write true or false"


def _duration(value: str) -> str | None:
    return None if _DURATION.fullmatch(value) else 'write a number and a unit, as "30s" or "5m"'


def _count(value: str) -> str | None:
    return None if value.isascii() and value.isdecimal() else "write a whole number"


def _url(value: str) -> str | None:
    if re.fullmatch(r"[\w.-]+(:\d+)?(/\S*)?", value, re.ASCII):
        return f'write the whole URL: "https://{value}"'
    try:
        parts = urlsplit(value)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) and " " not in value
    except ValueError:
        is_good = False
    return None if is_good else 'write a URL, as "https://HOST:PORT"'


def _line(value: str) -> str | None:
    """It goes into a header of HTTP, or into an address."""
    return None if value.isprintable() else "write it in one line, without a tab and without a line break at its end"


def _each(names: str, check: Check) -> dict[str, Check]:
    return dict.fromkeys(names.split(), check)


def _each_word(names: str, answer: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), answer)


CLIENT_OPTIONS: Mapping[str, Check] = {
    **_each("allow_http allow_invalid_certificates http1_only http2_keep_alive_while_idle http2_only", _boolean),
    **_each("randomize_addresses", _boolean),
    **_each("connect_timeout http2_keep_alive_interval http2_keep_alive_timeout pool_idle_timeout", _duration),
    **_each("read_timeout timeout", _duration),
    **_each("default_content_type proxy_ca_certificate proxy_excludes proxy_url root_certificate user_agent", any_text),
    "pool_max_idle_per_host": _count,
}
"""What obstore wants to be told of its HTTP client apart from the store; delta-rs takes both together."""
_AWS: Mapping[str, Check] = {
    **_each("disable_bulk_delete disable_tagging imdsv1_fallback request_payer s3_express skip_signature", _boolean),
    **_each("unsigned_payload virtual_hosted_style_request", _boolean),
    **_each("endpoint endpoint_url endpoint_url_sts metadata_endpoint", _url),
    **_each("access_key_id default_region region secret_access_key session_token token", _line),
    **_each("bucket bucket_name container_authorization_token_file copy_if_not_exists", any_text),
    **_each("container_credentials_full_uri container_credentials_relative_uri", any_text),
    **_each("role_arn role_session_name server_side_encryption", any_text),
    **_each("sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id web_identity_token_file", any_text),
    "checksum_algorithm": one_of("sha256", "crc64nvme"),
    "conditional_put": one_of("etag", "disabled", has_case=True),
}
_GOOGLE: Mapping[str, Check] = {
    **_each("application_credentials bearer_token bucket bucket_name service_account service_account_key", any_text),
    **_each("service_account_path", any_text),
    "base_url": _url,
    "skip_signature": _boolean,
}
_AZURE: Mapping[str, Check] = {
    **_each("disable_tagging skip_signature use_azure_cli use_fabric_endpoint", _boolean),
    **_each("authority_host endpoint identity_endpoint msi_endpoint", _url),
    **_each("authority_id client_id client_secret container_name credential_type fabric_cluster_identifier", any_text),
    **_each("fabric_session_token fabric_token_service_url fabric_workload_host federated_token_file", any_text),
    **_each("msi_resource_id object_id tenant_id", any_text),
}
_AZURE_STORAGE: Mapping[str, Check] = {
    **_each("authority_host endpoint", _url),
    **_each("access_key account_key account_name authority_id client_id client_secret encryption_key", any_text),
    **_each("master_key sas_key sas_token tenant_id token", any_text),
    "use_emulator": _boolean,
}
_PREFIXES = {"aws_": _AWS, "google_": _GOOGLE, "azure_": _AZURE, "azure_storage_": _AZURE_STORAGE}
STORE_OPTIONS: Mapping[str, Check] = {
    **{f"{prefix}{name}": check for prefix, names in _PREFIXES.items() for name, check in names.items()},
    **{name: check for names in _PREFIXES.values() for name, check in names.items()},
    "bearer_token": any_text,
}
"""What the stores of S3, Google and Azure are told, with the name of the cloud in front of it or without."""

_SPARKS = 'write it under [spark.conf], as `"spark.hadoop.fs.s3a..." = ...`: what is here does not reach Spark'
_FROM_THE_ENVIRONMENT = "leave it out: credentials that are not given come from the environment"
_WORDS: Mapping[str, str] = {
    **_each_word("key access_key aws_access_key aws_key username user", "write it as `aws_access_key_id`"),
    **_each_word("secret secret_key aws_secret_key aws_secret password", "write it as `aws_secret_access_key`"),
    **_each_word("s3_endpoint url endpoint_override host aws_endpoint_url_s3", "write it as `aws_endpoint`"),
    **_each_word("s3_region region_name location", "write it as `aws_region`"),
    **_each_word("path_style_access force_path_style s3_force_path_style addressing_style path_style",
                 "write it as `aws_virtual_hosted_style_request = false`"),
    **_each_word("verify verify_ssl insecure ssl_verify",
                 "write `allow_invalid_certificates = true` where it is not to be verified"),
    **_each_word("use_ssl ssl secure http",
                 "write http:// or https:// in front of the endpoint; the first needs `allow_http = true`"),
    **_each_word("proxy http_proxy https_proxy", "write it as `proxy_url`"),
    **_each_word("profile aws_profile profile_name anon conn_id connection aws_conn_id", _FROM_THE_ENVIRONMENT),
    **_each_word("fs spark hadoop", _SPARKS),
    **_each_word("retries max_retries retry retry_timeout", "leave it out: ten tries are made"),
    **_each_word("client_options storage_options options client", "write what is in it beside the others"),
}  # fmt: skip
"""What other tools call such settings, and what to write."""


def check_storage_options(given: Mapping[str, str], place: str) -> None:
    """Refuse what no object store takes.

    Args:
        given: The settings, with names in lower case.
        place: Where they are written, for messages.

    Raises:
        DeclarationError: A name is unknown or stands for what another one does, or a value is not what it must be; a
            value that may be a secret is not shown.
    """
    known = {**CLIENT_OPTIONS, **STORE_OPTIONS}
    plain: dict[str, str] = {}
    for name, value in given.items():
        if name not in known:
            raise DeclarationError(f"unknown key `{name}`", where=place, remedy=_advice(name))
        wrong = known[name](value)
        if wrong is not None:
            shown = "not what it must be" if is_secret_name(name) else repr(value)
            raise DeclarationError(f"`{name}` is {shown}", where=place, remedy=wrong)
        same = plain.setdefault(_plain(name), name)
        if same != name:
            raise DeclarationError(f"`{same}` and `{name}` are one setting", where=place, remedy="keep one of them")
    _check_http(given, place)


def _plain(name: str) -> str:
    return re.sub(r"^(aws|google|azure(_storage)?)_", "", name)


def _advice(name: str) -> str:
    if _plain(name) in CLIENT_OPTIONS:
        # With the name of a cloud in front, obstore ends in a panic.
        return f"write it as `{_plain(name)}`"
    word = name.partition(".")[0]
    if word in _WORDS:
        return _WORDS[word]
    near = difflib.get_close_matches(name, [*CLIENT_OPTIONS, *STORE_OPTIONS], n=1, cutoff=0.7)
    return f"did you mean `{near[0]}`?" if near else "write it as obstore names it, as `aws_endpoint` or `timeout`"


def _check_http(given: Mapping[str, str], place: str) -> None:
    """Refuse an endpoint without TLS where that is not allowed: no request would be sent."""
    is_allowed = any(name.upper().endswith("ALLOW_HTTP") for name in (*given, *os.environ))
    name = next((name for name, value in given.items() if "endpoint" in name and value.startswith("http://")), None)
    if name is not None and not is_allowed:
        raise DeclarationError(
            f"`{name}` begins with http://, which is not allowed yet",
            where=place,
            remedy="write `allow_http = true`, too",
        )

"""docker-compose.yaml and the Dockerfile: valid, pinned, without secrets, and closed to other machines.

No container engine runs where these tests do: the file is checked against the schema of the compose specification,
and never started.
"""

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text("utf-8")
COMPOSE_TEXT = (REPOSITORY / "docker-compose.yaml").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("sluice:")}

SECRET_NAME = re.compile(r"PASSWORD$|SECRET|_KEY$|TOKEN|SQL_ALCHEMY_CONN")
REQUIRED = re.compile(r"\$\{[A-Z_]+:\?[^}]+\}")


def locked_versions() -> dict[str, str]:
    """Every version in requirements.txt, by package name."""
    lines = (REPOSITORY / "requirements.txt").read_text("utf-8").splitlines()
    return dict(match.groups() for line in lines if (match := re.match(r"([a-z0-9-]+)==([^\s;\\]+)", line)))


def variables(service: dict[str, Any]) -> dict[str, str]:
    """A service's environment."""
    return dict(service.get("environment", {}))


def test_compose_file_is_valid() -> None:
    """The file obeys the JSON schema of the compose specification, as check-jsonschema ships it."""
    found = importlib.util.find_spec("check_jsonschema")
    if found is None or found.origin is None:
        pytest.skip("the package check-jsonschema, which ships the schema, is not installed")
    schema = Path(found.origin).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(COMPOSE, json.loads(schema.read_text("utf-8")))


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_watched_or_ends(name: str) -> None:
    """Every service has a health check, unless it runs once."""
    service = SERVICES[name]
    assert "healthcheck" in service or service["restart"] == "no"


@pytest.mark.parametrize("name", SERVICES)
def test_service_waits_for_what_can_be_waited_for(name: str) -> None:
    """A service waits for a health check that exists, or for the end of a service that runs once."""
    for other, condition in SERVICES[name].get("depends_on", {}).items():
        has_check = "healthcheck" in SERVICES[other]
        assert condition["condition"] == ("service_healthy" if has_check else "service_completed_successfully")


@pytest.mark.parametrize("name", SERVICES)
def test_secrets_are_required_variables(name: str) -> None:
    """Whatever is named as a secret holds a variable that must be set, and has no default."""
    for variable, value in variables(SERVICES[name]).items():
        if SECRET_NAME.search(variable):
            assert REQUIRED.search(value), variable


def test_only_the_port_has_a_default() -> None:
    """No variable falls back to a value, except the number of the published port."""
    assert re.findall(r"\$\{([A-Z_]+):?-", COMPOSE_TEXT) == ["AIRFLOW_PORT"]


def test_commands_hold_no_secret() -> None:
    """No secret stands in a command, where every process list shows it."""
    for service in SERVICES.values():
        assert "${" not in str(service.get("command", "")).replace("$${", "")


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_on_loopback(name: str) -> None:
    """A published port listens on 127.0.0.1 only."""
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_only_airflow_is_published() -> None:
    """Spark's master takes applications without a login, and PostgreSQL is nobody else's: their ports stay inside."""
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["airflow-apiserver"]


def test_spark_gets_no_secret_of_airflow() -> None:
    """Executors run the project's code; they have no business with Airflow's keys."""
    assert not variables(SERVICES["spark-master"])
    assert not variables(SERVICES["spark-worker"])


def test_home_and_data_are_at_one_path() -> None:
    """Every service of ours has the same volumes at the same paths, below the project."""
    for service in OURS.values():
        assert {"sluice-home:/opt/sluice/var", "sluice-data:/opt/sluice/data"} <= set(service["volumes"])


def test_image_bears_the_locked_versions() -> None:
    """The tag of the image names the versions that requirements.txt and pyproject.toml pin."""
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    locked = locked_versions()
    tag = f"sluice:{version}-airflow{locked['apache-airflow']}-spark{locked['pyspark']}"
    assert {service["image"] for service in OURS.values()} == {tag}


@pytest.mark.parametrize(
    "image",
    [*(service["image"] for service in SERVICES.values()), *re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)],
)
def test_images_are_pinned(image: str) -> None:
    """Every image has a tag with a full version."""
    assert re.search(r":\d+\.\d+", image)


def test_pinned_packages_agree_with_the_lock() -> None:
    """A package that the Dockerfile pins itself has no other version in requirements.txt."""
    locked = locked_versions()
    pinned = dict(re.findall(r"([a-z0-9-]+)==(\S+)", DOCKERFILE))
    assert {name: locked.get(name, version) for name, version in pinned.items()} == pinned


@pytest.mark.parametrize(
    "words",
    [
        "FROM python:3.11.",
        "openjdk-17-jre-headless",
        "pip install --no-deps --require-hashes --requirement requirements.txt",
        "sluice jars fetch",
        "USER sluice",
    ],
)
def test_image_is_built_from_what_is_pinned(words: str) -> None:
    """The image has the supported Python and Java, the locked packages and the jars, and runs without root."""
    assert words in DOCKERFILE


@pytest.mark.parametrize("path", ["README.md", "LICENSE", "pyproject.toml", "include", "plugins", "dags", "jobs"])
def test_image_gets_what_it_is_built_from(path: str) -> None:
    """What the wheel and the project need is not kept out of the image."""
    assert path not in (REPOSITORY / ".dockerignore").read_text("utf-8").split()


def test_secrets_stay_out_of_the_image() -> None:
    """The file that holds the secrets is not copied into the image."""
    assert ".env" in (REPOSITORY / ".dockerignore").read_text("utf-8").split()

"""The Kubernetes documents of docs/serving.md are valid, and fit the server and its container."""

import re
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from tests.interfaces import ROOT
from zoo.cli import cli

PAGE = ROOT / "docs" / "serving.md"
CONTAINER = ROOT / "containers" / "serve.Dockerfile"
KINDS = ["Deployment", "Service", "PodDisruptionBudget"]


def documents() -> list[dict[str, Any]]:
    """Return the documents of the page."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return list(yaml.safe_load_all(block))


def document(kind: str) -> Any:
    (match,) = [item for item in documents() if item["kind"] == kind]
    return match


@pytest.fixture
def container() -> Any:
    """The container of the Deployment."""
    (found,) = document("Deployment")["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_follows_the_schema(kind: str) -> None:
    assert kubernetes_validate.validate(document(kind), "1.34", strict=True) == "1.34"


def test_a_wrong_document_is_noticed() -> None:
    deployment = document("Deployment")
    deployment["spec"]["replica"] = deployment["spec"].pop("replicas")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, "1.34", strict=True)


def test_all_documents_select_the_same_pods() -> None:
    assert [item["kind"] for item in documents()] == KINDS
    labels = document("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert document("Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert document("Service")["spec"]["selector"] == labels
    assert document("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels


def test_the_probes_ask_paths_that_need_no_key(container: Any) -> None:
    paths = {
        name: container[name]["httpGet"]["path"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {
        "startupProbe": "/health",
        "livenessProbe": "/health",
        "readinessProbe": "/ready",
    }


def test_the_arguments_are_those_of_the_command(container: Any) -> None:
    instructions = CONTAINER.read_text("utf-8")
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", instructions, re.MULTILINE)
    program, name, *words = yaml.safe_load(entry)
    assert (program, name) == ("zoo", "serve")
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    context = command.make_context(name, [*words, *container["args"]])
    assert context.params["host"] == "0.0.0.0"
    (port,) = container["ports"]
    assert context.params["port"] == port["containerPort"] == 8080
    assert "EXPOSE 8080" in instructions
    (service_port,) = document("Service")["spec"]["ports"]
    assert service_port["targetPort"] == port["name"]


def test_the_memory_covers_what_waits(container: Any) -> None:
    words = container["args"]
    waiting_mb = int(words[words.index("--max-waiting-mb") + 1])
    workers = int(words[words.index("--workers") + 1])
    limit = container["resources"]["limits"]["memory"]
    assert limit == "2Gi" and workers * waiting_mb < 2048


def test_what_is_mounted_is_a_volume(container: Any) -> None:
    volumes = {
        volume["name"] for volume in document("Deployment")["spec"]["template"]["spec"]["volumes"]
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes

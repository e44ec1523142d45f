"""Exports in Hub repositories, opened by name as models are."""

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import zoo
from tests.exporting.conftest import with_tokenizer
from tests.exporting.making import export_onnx
from tests.hub.hub_server import Hub
from zoo.checkpoint import encode_manifest, load_checkpoint
from zoo.cli import cli
from zoo.conformance.verify import verify
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir
from zoo.hub.upload.plan import plan_upload
from zoo.io.paths import store

REPO = "someone/tiny-onnx"
TEXTS = ["a b c", "d e"]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    model = with_tokenizer(folder, "sequence-classification").path
    export_onnx(load_checkpoint(model), folder / "graph")
    return folder / "graph"


def uploaded(export: Path) -> dict[str, bytes]:
    """Return the files that ``zoo push`` sends, with a card that is not the manifest's."""
    plan = plan_upload(export, REPO)
    files = {name: (export / name).read_bytes() for name in plan.files}
    return {**files, "README.md": plan.card or b"", ".gitattributes": b"*.onnx filter=lfs\n"}


def run(*arguments: str) -> list[dict[str, object]]:
    done = CliRunner().invoke(cli, list(arguments))
    assert done.exit_code == 0, done.exception
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_is_opened_by_name_and_kept(export: Path, hub: Hub, tmp_path: Path) -> None:
    expected = zoo.load(export).classify(TEXTS)
    hub.add(REPO, uploaded(export))
    model = zoo.load(REPO)
    assert model.classify(TEXTS) == expected
    assert (model.session.backend, model.checkpoint.path) == ("onnx", store() / REPO)
    outcomes = {check.name: check.outcome for check in verify(model.checkpoint.path)}
    assert [name for name, outcome in outcomes.items() if outcome == "failed"] == []
    requests = len(hub.requests)
    results = run("run", "classify", REPO, *TEXTS)
    assert [row["label"] for row in results] == [row["label"] for row in expected]
    assert len(hub.requests) == requests, "the copy in the store needs no connection"


def test_a_revision_and_a_lock_file_hold(export: Path, hub: Hub, tmp_path: Path) -> None:
    commit = hub.add(REPO, uploaded(export))
    lock = tmp_path / "zoo.lock"
    run("run", "classify", REPO, "--lock", str(lock), *TEXTS)
    (entry,) = json.loads(lock.read_text())["models"].values()
    assert entry["revision"] == commit
    manifest = load_checkpoint(export).manifest
    assert entry["files"].keys() == {*manifest.files, "zoo.json"}
    other = zoo.load(REPO, revision=commit)
    assert other.checkpoint.path == store() / f"{REPO}@{commit}"
    copy = store() / REPO / "zoo.json"
    copy.write_bytes(encode_manifest(msgspec.structs.replace(manifest, licence="mit")))
    done = CliRunner().invoke(cli, ["run", "classify", REPO, "--lock", str(lock), "a"])
    assert isinstance(done.exception, VerificationError)
    assert f"{REPO} zoo.json is not the file that {lock} locks" in done.exception.what


@pytest.mark.parametrize("changed", ["onnx/model.onnx", "tokenizer.json", "zoo.json", ".env"])
def test_what_differs_from_its_manifest_is_refused(export: Path, hub: Hub, changed: str) -> None:
    files = uploaded(export)
    if changed == ".env":
        manifest = load_checkpoint(export).manifest
        listed = {**manifest.files, changed: manifest.files["README.md"]}
        record = msgspec.structs.replace(manifest, files=listed)
        files |= {changed: b"x", "zoo.json": encode_manifest(record)}
    else:
        files[changed] = files[changed].replace(b"1", b"2", 1)
        assert files[changed] != (export / changed).read_bytes()
    hub.add(REPO, files)
    with pytest.raises(VerificationError):
        zoo.load(REPO)
    assert [*store().rglob("*.onnx")] == [], "nothing is left behind"


def test_weights_next_to_an_export_are_converted(export: Path, hub: Hub, tmp_path: Path) -> None:
    """As of a repository that has a model and its graphs, for Transformers.js."""
    model = export.parent / "model"
    convert(CheckpointDir(model, "model"), tmp_path / "hub", to="hub")
    weights = {p.name: p.read_bytes() for p in (tmp_path / "hub").iterdir() if p.name[0] != "."}
    hub.add(REPO, {**uploaded(export), **weights})
    assert zoo.load(REPO).session.backend == "cpu"
    expected = zoo.load(model, backend="cpu").classify(TEXTS)
    found = zoo.load(REPO, backend="cpu").classify(TEXTS)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["scores"] == pytest.approx(theirs["scores"])
    # a file of another program that has the name of a manifest
    hub.add("someone/other", {**weights, "zoo.json": b'{"animals": ["lion"]}'})
    assert zoo.load("someone/other").session.backend == "cpu"


def test_commands_that_describe_it(export: Path, hub: Hub) -> None:
    files = uploaded(export)
    hub.add(REPO, files)
    (value,) = run("info", REPO, "--json")
    assert (value["export"], value["head"]) == ("onnx", "sequence-classification")
    shown = CliRunner().invoke(cli, ["info", REPO])
    assert f"next: zoo run classify {REPO}" in shown.stdout
    (fetched,) = run("fetch", REPO, "--json")
    assert isinstance(fetched["files"], Mapping)
    assert fetched["files"].keys() == files.keys() - {".gitattributes"}
    refused = CliRunner().invoke(cli, ["convert", REPO])
    assert "whose weights are not read back" in str(refused.exception)

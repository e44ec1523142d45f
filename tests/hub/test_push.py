"""``zoo push``: uploads to the Hub on loopback, by the real client."""

import hashlib
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from huggingface_hub import ModelCard

from tests.checkpoints import Make
from tests.exporting.making import export_onnx
from tests.hub.hub_server import TOKEN, Fault, Hub
from tests.inference.making import make_checkpoint
from zoo.checkpoint import encode_manifest, load_checkpoint
from zoo.checkpoint.records import SourceRecord
from zoo.cli import cli
from zoo.cli.models.push import command
from zoo.conformance.verify import verify
from zoo.conversion.convert import convert
from zoo.errors import ZooError
from zoo.hub.reference import resolve
from zoo.hub.source import CheckpointDir, locate_or_download
from zoo.inference import load_session
from zoo.io.digests.files import hash_file
from zoo.io.digests.self_digest import NO_DIGEST, add_digest

REPO = "someone/tiny-copy"
CREATE, COMMIT = "/api/repos/create", f"/api/models/{REPO}/commit/main"
WEIGHTS = "model.safetensors"


@pytest.fixture
def directory(hub_checkpoint: Make, tmp_path: Path) -> Path:
    """A directory of ``zoo convert --to hub``."""
    convert(CheckpointDir(hub_checkpoint("BertForMaskedLM"), "source"), tmp_path / "ours")
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    return tmp_path / "back"


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def files_of(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != ".zoo.json"
    }


def push(*arguments: object) -> Result:
    return CliRunner().invoke(command, list(map(str, arguments)))


def pushed(*arguments: object) -> str:
    """Upload, and return what is printed; the token is not."""
    done = push(*arguments, "--yes")
    assert done.exception is None, done.exception
    assert TOKEN not in done.output
    return done.stdout


def failure(done: Result, code: int) -> str:
    """Check for the exit code of an error and for one line; return the line."""
    assert isinstance(done.exception, ZooError) and done.exception.exit_code == code
    line = str(done.exception)
    assert "\n" not in line and TOKEN not in line + done.output
    return line


def sent(directory: Path) -> dict[str, bytes]:
    """Return the files with the name of the repository in the snippets of the model card."""
    files = files_of(directory)
    assert b"organisation/name" in files["README.md"]
    card = files["README.md"].replace(b"organisation/name", REPO.encode())
    return {**files, "README.md": card}


def test_without_yes_the_files_are_listed_and_nothing_is_sent(directory: Path, hub: Hub) -> None:
    (directory / "notes.txt").write_text("mine")
    done = push(directory, REPO, "--json")
    assert done.exception is None, done.exception
    value = json.loads(done.stdout)
    expected = {n: c for n, c in sent(directory).items() if n != "notes.txt"}
    assert {file["name"]: file["sha256"] for file in value["files"]} == {
        name: hashlib.sha256(content).hexdigest() for name, content in expected.items()
    }
    assert {file["name"]: file["bytes"] for file in value["files"]} == {
        name: len(content) for name, content in expected.items()
    }
    assert value["left_out"] == ["notes.txt"] and value["uploaded"] is False
    assert value["private"] is True and value["commit"] is None
    assert "notes.txt is left out" in done.stderr
    printed = push(directory, REPO).stdout
    assert f"would go to {REPO}, which is private if it is new; add --yes" in printed
    assert "licence: none" in printed
    assert hub.requests == []


def test_an_upload_is_downloaded_as_it_was(
    directory: Path, hub: Hub, token: None, tmp_path: Path
) -> None:
    printed = pushed(directory, REPO, "--message", "First version")
    repo = hub.repos[REPO]
    assert repo.private and hub.messages == ["First version"]
    assert repo.refs["main"].files == sent(directory)
    assert f"{hub.url}/{REPO}/commit/{repo.refs['main'].sha}" in printed
    digest = hashlib.sha256((directory / WEIGHTS).read_bytes()).hexdigest()
    stored = [request for request in hub.requests if request.what == digest]
    assert [request.method for request in stored] == ["PUT"]
    assert not stored[0].authorized  # the storage must not see the token
    convert(locate_or_download(resolve(REPO)), tmp_path / "again")
    expected = (tmp_path / "ours" / WEIGHTS).read_bytes()
    assert (tmp_path / "again" / WEIGHTS).read_bytes() == expected


def test_a_second_upload_sends_what_changed(directory: Path, hub: Hub, token: None) -> None:
    pushed(directory, REPO, "--public")
    assert not hub.repos[REPO].private
    hub.requests.clear()
    card = directory / "README.md"
    card.write_text(card.read_text() + "\nEdited by hand.\n")
    pushed(directory, REPO)
    assert hub.repos[REPO].refs["main"].files == files_of(directory)
    assert [request for request in hub.requests if request.method == "PUT"] == []
    assert not hub.repos[REPO].private  # a repository keeps its visibility
    pushed(directory, REPO)  # nothing changed
    assert len(hub.messages) == 2


def test_transient_failures_are_repeated(directory: Path, hub: Hub, token: None) -> None:
    soon = {"Retry-After": "0"}
    hub.fail(COMMIT, Fault(status=503, headers=soon))
    hub.fail(f"/{REPO}.git/info/lfs/objects/batch", Fault(status=502, headers=soon))
    pushed(directory, REPO)
    assert hub.repos[REPO].refs["main"].files == sent(directory)


def test_refusals_are_one_line(directory: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    no_token = failure(push(directory, REPO, "--yes"), 4)
    assert no_token == "an upload needs an access token; set $HF_TOKEN"
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    denied = failure(push(directory, REPO, "--yes"), 4)
    assert "answered 401" in denied and "check $HF_TOKEN" in denied and "hf_other" not in denied
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.fail(CREATE, Fault(status=403))
    assert "answered 403" in failure(push(directory, REPO, "--yes"), 4)
    hub.fail(COMMIT, *[Fault(status=500, headers={"Retry-After": "0"})] * 4)
    assert "try again: files that arrived" in failure(push(directory, REPO, "--yes"), 4)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "needs a connection" in failure(push(directory, REPO, "--yes"), 2)


def test_other_directories_are_refused(directory: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    assert f"`zoo convert {ours} --to hub -o ours-hub`" in failure(push(ours, REPO), 2)
    source = tmp_path / "source"
    assert "did not write it" in failure(push(source, REPO), 2)
    assert "is not a directory" in failure(push(tmp_path / "no", REPO), 2)
    assert "give organisation/name" in failure(push(directory, "tiny"), 2)
    card = directory / "README.md"
    card.write_text("---\nlicense: [\n---\n")
    assert "not YAML that can be read" in failure(push(directory, REPO), 3)
    card.unlink()
    weights = directory / WEIGHTS
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "was changed" in failure(push(directory, REPO), 3)
    weights.unlink()
    assert "is missing" in failure(push(directory, REPO), 3)


@pytest.mark.by_default("../x", "org/a..b")
@pytest.mark.parametrize("name", ["../x", "org/..", ".org/x", "org/.x", "org/a..b", "-", "org/-x"])
def test_names_that_are_no_repository(directory: Path, name: str) -> None:
    assert "give organisation/name" in failure(push(directory, name), 2)


@pytest.mark.parametrize("name", ["README.md", "config.json", ".zoo.json"])
def test_links_are_not_read(directory: Path, tmp_path: Path, name: str) -> None:
    """A model card that is a link would be uploaded with what it points to."""
    (tmp_path / "secret").write_bytes((directory / name).read_bytes())
    (directory / name).unlink()
    (directory / name).symlink_to(tmp_path / "secret")
    assert f"{directory / name} leads through a link" in failure(push(directory, REPO), 4)


def test_a_manifest_that_was_changed(directory: Path) -> None:
    record = json.loads((directory / ".zoo.json").read_text())
    (directory / "notes.txt").write_text("mine")
    digest = msgspec.to_builtins(hash_file(directory / "notes.txt"))
    record["files"]["notes.txt"] = digest
    (directory / ".zoo.json").write_text(json.dumps(record))
    assert "its digest is not right" in failure(push(directory, REPO), 3)
    (directory / ".env").write_text("TOKEN=1")
    record["files"][".env"] = msgspec.to_builtins(hash_file(directory / ".env"))
    content = json.dumps({**record, "digest": NO_DIGEST}).encode()
    (directory / ".zoo.json").write_bytes(add_digest(content))
    assert "lists .env, which zoo does not write" in failure(push(directory, REPO), 3)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of a model that was trained and converted under absolute paths."""
    folder = tmp_path_factory.mktemp("private-folder")
    checkpoint = make_checkpoint(folder / "model", "masked-lm", num_layers=1)
    training = {
        "command": f"zoo pretrain bert --train {folder}/books",
        "data": [str(folder / "books")],
    }
    source = SourceRecord(reference=str(folder / "source"))
    manifest = msgspec.structs.replace(checkpoint.manifest, training=training, source=source)
    (checkpoint.path / "zoo.json").write_bytes(encode_manifest(manifest))
    export_onnx(load_checkpoint(checkpoint.path), folder / "graph")
    return folder / "graph"


@pytest.mark.long
def test_an_export_is_uploaded_with_its_card_and_runs_again(
    export: Path, hub: Hub, token: None, tmp_path: Path
) -> None:
    pushed(export, REPO)
    files = hub.repos[REPO].refs["main"].files
    assert files == sent(export) and {"README.md", "onnx/model.onnx", "zoo.json"} <= files.keys()
    named = [name for name, content in files.items() if b"private-folder" in content]
    assert named == []
    card = ModelCard(files["README.md"].decode())
    data: Any = card.data
    assert (data.library_name, data.pipeline_tag) == ("transformers.js", "fill-mask")
    assert f"zoo run fill-mask {REPO}" in card.text and "onnx/model.onnx" in card.text
    for name, content in files.items():
        (tmp_path / "again" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "again" / name).write_bytes(content)
    assert load_session(load_checkpoint(tmp_path / "again")).dtype == "float32"
    assert [check for check in verify(tmp_path / "again") if check.outcome == "failed"] == []


def test_exports_that_are_changed_or_older_are_refused(export: Path, tmp_path: Path) -> None:
    changed = shutil.copytree(export, tmp_path / "changed")
    (changed / "README.md").write_text("---\nlicense: mit\n---\nMine.\n")  # a card may be edited
    assert "licence: mit" in push(changed, REPO).stdout
    graph = changed / "onnx" / "model.onnx"
    graph.write_bytes(graph.read_bytes() + b" ")
    assert "export the model again" in failure(push(changed, REPO), 3)
    older = shutil.copytree(export, tmp_path / "older")
    manifest = load_checkpoint(older).manifest
    files = {name: file for name, file in manifest.files.items() if name != "README.md"}
    (older / "README.md").unlink()
    record = msgspec.structs.replace(manifest, files=files)
    (older / "zoo.json").write_bytes(encode_manifest(record))
    assert "without a model card; export the model again" in failure(push(older, REPO), 2)


def test_a_model_card_with_deeply_nested_metadata(directory: Path) -> None:
    (directory / "README.md").write_text(f"---\nlicense: {'[' * 5000}{']' * 5000}\n---\n")
    assert "nesting of YAML" in failure(push(directory, REPO), 3)


@pytest.mark.long
def test_hints_are_commands_that_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a model, a run, and a model that no class of the Hub has."""
    monkeypatch.chdir(tmp_path)
    make_checkpoint(tmp_path / "mine" / "model", "masked-lm", num_layers=1)
    (tmp_path / "mine" / "run.json").write_text("{}")
    make_checkpoint(tmp_path / "mixed" / "model", "sequence-classification", num_layers=1, mix=True)
    hints = {"mine/model": "mine-hub", "mine": "mine-hub", "mixed/model": "mixed-onnx"}
    for path, output in hints.items():
        _, command, *_ = failure(push(path, REPO), 2).split("`")
        done = CliRunner().invoke(cli, shlex.split(command)[1:])
        assert done.exception is None, done.exception
        assert "add --yes" in push(output, REPO).stdout
        shutil.rmtree(output)


@pytest.mark.parametrize("edited", [False, True])
def test_a_licence_is_stated_on_the_card_that_is_sent(
    export: Path, hub: Hub, token: None, tmp_path: Path, edited: bool
) -> None:
    folder = shutil.copytree(export, tmp_path / "graph")
    if edited:
        (folder / "README.md").write_text("---\nlicense: other\ntags: [mine]\n---\nMy words.\n")
    before = (folder / "README.md").read_text()
    shown = push(folder, REPO, "--licence", "cc-by-4.0", "--yes")
    assert shown.exit_code == 0 and "licence: cc-by-4.0" in shown.stdout
    card = ModelCard(hub.repos[REPO].refs["main"].files["README.md"].decode())
    data: Any = card.data
    assert data.license == "cc-by-4.0"
    assert ("My words." in card.text and data.tags == ["mine"]) == edited
    assert (folder / "README.md").read_text() == before  # the directory stays as it is


def test_a_card_without_metadata_gets_a_licence(directory: Path, hub: Hub, token: None) -> None:
    (directory / "README.md").write_text("My words.\n")
    assert push(directory, REPO, "--license", "mit", "--yes").exit_code == 0
    card = ModelCard(hub.repos[REPO].refs["main"].files["README.md"].decode())
    assert (card.data.license, card.text.strip()) == ("mit", "My words.")  # type: ignore[attr-defined]


def test_a_licence_has_a_name_that_the_hub_takes(directory: Path) -> None:
    assert "is not the name of a licence" in failure(
        push(directory, REPO, "--licence", "My own"), 2
    )

"""Commands that download from the Hub, with a Hub on loopback."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.checkpoints import Make
from tests.families import elmo_files
from tests.hub.hub_server import Fault, Hub
from tests.warm import zoo

NAME = "all-minilm-l6-v2"
REPO = "sentence-transformers/all-MiniLM-L6-v2"


def files(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir()}


@pytest.fixture
def published(hub: Hub, hub_checkpoint: Make) -> str:
    """Commit a checkpoint of a registry entry, with additional unused files; return the commit."""
    more = {"tf_model.h5": b"x" * 100_000, "pytorch_model.bin": b"x" * 100_000}
    return hub.add(REPO, files(hub_checkpoint("BertModel")) | more)


def test_convert_by_name_and_use_it_again_offline(hub: Hub, published: str, tmp_path: Path) -> None:
    done = zoo("convert", NAME, "--json")
    assert done.returncode == 0, done.stderr
    path = Path(json.loads(done.stdout)["path"])
    assert path == tmp_path / "zoo-home" / "models" / NAME
    assert hub.sent("tf_model.h5") == hub.sent("pytorch_model.bin") == 0
    manifest = json.loads((path / "zoo.json").read_text())
    assert manifest["source"]["repo"] == REPO
    assert manifest["source"]["revision"] == published
    weights = hub.repos[REPO].commits[0].files["model.safetensors"]
    recorded = manifest["source"]["files"]["model.safetensors"]
    assert recorded["sha256"] == hashlib.sha256(weights).hexdigest()
    assert manifest["licence"] == "apache-2.0"
    before = len(hub.requests)
    again = zoo("run", "embed", NAME, "ab cd", "--offline")
    assert again.returncode == 0, again.stderr
    assert len(json.loads(again.stdout)["embedding"]) == 32
    assert zoo("convert", NAME, "--offline", "-o", tmp_path / "again").returncode == 0
    assert len(hub.requests) == before


def test_run_downloads_and_converts_on_first_use(published: str) -> None:
    done = zoo("run", "embed", REPO, "ab")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_fetch_lists_files_and_digests(published: str) -> None:
    done = zoo("fetch", NAME, "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["revision"] == published
    assert set(value["files"]) == {"config.json", "model.safetensors", "vocab.txt"}


@pytest.mark.long
def test_what_the_registry_expects_and_a_repository_has_no_more_is_said(
    hub: Hub, hub_checkpoint: Make
) -> None:
    left = {n: data for n, data in files(hub_checkpoint("BertModel")).items() if n != "vocab.txt"}
    hub.add(REPO, left)
    done = zoo("fetch", NAME)
    assert done.returncode == 0, done.stderr
    assert f"{REPO} no longer has vocab.txt, which the registry expects\n" in done.stderr


def test_info_of_a_repository_reads_the_configuration_alone(hub: Hub, hub_checkpoint: Make) -> None:
    hub.add("someone/model", files(hub_checkpoint("BertForMaskedLM")))
    done = zoo("info", "someone/model", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["family"] == "bert"
    assert hub.sent("model.safetensors") == 0


@pytest.mark.long
@pytest.mark.parametrize("more", [{}, {"a_options.json": b'{"lstm": 1}'}])
def test_info_of_a_repository_without_config_json(
    hub: Hub, tmp_path: Path, more: dict[str, bytes]
) -> None:
    """The family names its configuration file; files of similar names are ignored."""
    source, golden = elmo_files.published(tmp_path / "published")
    hub.add("someone/other", files(source) | more)
    done = zoo("info", "someone/other", "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["family"] == "elmo"
    assert value["config"] == golden.hub_config
    assert hub.sent("small_weights.hdf5") == 0


def test_info_of_a_repository_without_a_configuration(hub: Hub) -> None:
    hub.add("someone/data", {"README.md": b"# data\n"})
    done = zoo("info", "someone/data")
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "someone/data has no configuration" in done.stderr


def test_a_damaged_lock_is_refused_for_a_name_and_for_a_folder(
    hub: Hub, hub_checkpoint: Make, tmp_path: Path
) -> None:
    lock = tmp_path / "team.lock"
    lock.write_text("models: [")
    for reference in (NAME, hub_checkpoint("BertModel")):
        done = zoo("info", reference, "--lock", lock)
        assert (done.returncode, done.stderr.count("\n")) == (3, 1)
        assert "team.lock" in done.stderr


def test_a_lock_file_pins_the_revision(
    hub: Hub, published: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    lock = tmp_path / "team.lock"
    assert zoo("fetch", NAME, "--lock", lock).returncode == 0
    newer = hub.add(REPO, files(hub_checkpoint("BertForMaskedLM", "newer")))
    done = zoo("fetch", NAME, "--lock", lock, "--json")
    assert json.loads(done.stdout)["revision"] == published
    assert json.loads(zoo("fetch", NAME, "--json").stdout)["revision"] == newer


def test_a_stored_model_must_be_of_the_locked_commit(
    hub: Hub, published: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    lock = tmp_path / "team.lock"
    assert zoo("convert", NAME).returncode == 0
    newer = hub.add(REPO, files(hub_checkpoint("BertModel", "newer")))
    assert zoo("fetch", NAME, "--lock", lock).returncode == 0
    done = zoo("run", "embed", NAME, "ab", "--lock", lock)
    assert done.returncode == 3
    assert published[:12] in done.stderr and newer[:12] in done.stderr
    assert zoo("run", "embed", NAME, "ab").returncode == 0
    assert zoo("convert", NAME, "--force", "--lock", lock).returncode == 0
    assert zoo("run", "embed", NAME, "ab", "--lock", lock).returncode == 0


@pytest.mark.long
def test_what_is_in_the_store_is_converted_again_when_asked(hub: Hub, published: str) -> None:
    assert zoo("convert", NAME).returncode == 0
    before = len(hub.requests)
    done = zoo("convert", NAME)
    assert done.returncode == 2
    assert "give --force" in done.stderr
    assert len(hub.requests) == before
    assert json.loads(zoo("convert", NAME, "--force", "--json").stdout)["format"] == "safetensors"
    assert json.loads(zoo("fetch", NAME, "--json").stdout)["revision"] == published


@pytest.mark.long
def test_a_revision_has_a_place_of_its_own(hub: Hub, published: str, hub_checkpoint: Make) -> None:
    hub.add(REPO, files(hub_checkpoint("BertForMaskedLM", "other")), branch="v2")
    first, second = (
        json.loads(zoo("convert", NAME, "--json", *more).stdout)
        for more in ((), ("--revision", "v2"))
    )
    assert first["head"] == "none"
    assert second["head"] == "masked-lm"
    assert first["path"] != second["path"]


@pytest.mark.parametrize("command", ["fetch", "convert", "info"])
def test_a_repository_that_is_not_there(hub: Hub, command: str) -> None:
    done = zoo(command, "someone/nothing")
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert "someone/nothing" in done.stderr


def test_a_gated_repository(hub: Hub, hub_checkpoint: Make) -> None:
    hub.add("someone/secret", files(hub_checkpoint()), gated=True)
    done = zoo("convert", "someone/secret")
    assert done.returncode == 4
    assert done.stderr.count("\n") == 1


def test_offline_without_a_copy(hub: Hub, published: str) -> None:
    for done in (zoo("convert", NAME, "--offline"), zoo("convert", NAME, HF_HUB_OFFLINE="1")):
        assert done.returncode == 4
        assert done.stderr.count("\n") == 1
    assert not hub.requests


@pytest.mark.long
def test_a_file_that_is_not_what_was_published(hub: Hub, published: str, tmp_path: Path) -> None:
    hub.fail("model.safetensors", *[Fault(corrupt=True)] * 8)
    done = zoo("convert", NAME)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "zoo-home" / "models").exists()


@pytest.mark.long
def test_a_tokenizer_from_elsewhere(
    hub: Hub, published: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    bare = hub_checkpoint("BertModel", "bare", tokenizer=False)
    done = zoo("convert", bare, "-o", tmp_path / "one")
    assert "--tokenizer REF adds it" in done.stdout
    failed = zoo("run", "embed", tmp_path / "one", "ab")
    assert failed.returncode == 2
    assert "--tokenizer" in failed.stderr
    done = zoo("convert", bare, "-o", tmp_path / "two", "--tokenizer", NAME)
    assert done.returncode == 0, done.stderr
    assert hub.sent("model.safetensors") == 0
    assert zoo("run", "embed", tmp_path / "two", "ab").returncode == 0

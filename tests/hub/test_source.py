"""The model card of a downloaded checkpoint: licence, languages and tags."""

import shutil
from pathlib import Path

import pytest
from huggingface_hub import ModelCard, constants

from tests.checkpoints import Make
from tests.hub.conftest import REPO
from tests.hub.hub_server import Hub
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.hub.reference import resolve
from zoo.hub.source import CheckpointDir, locate_or_download
from zoo.io.limits import MAX_YAML_BYTES

CARD = """---
language: [de, en]
license: mit
tags: [legal, sentence-similarity, "dataset:x", !!python/name:os.system , 7]
---
# A model
"""
STATED = CARD.replace(" !!python/name:os.system ,", "")


@pytest.fixture
def files(hub_checkpoint: Make) -> dict[str, bytes]:
    folder = hub_checkpoint("BertModel")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_licence_languages_and_tags_are_kept(
    hub: Hub, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.add(REPO, {**files, "README.md": STATED.encode()})
    source = locate_or_download(resolve(REPO))
    assert "README.md" in source.digests
    convert(source, tmp_path / "model")
    manifest = load_checkpoint(tmp_path / "model").manifest
    assert (manifest.licence, manifest.languages) == ("mit", ["de", "en"])
    assert manifest.tags == ["legal", "sentence-similarity"]
    convert(CheckpointDir(tmp_path / "model", "model"), tmp_path / "hub", to="hub")
    data = ModelCard.load(tmp_path / "hub" / "README.md").data
    assert (data.license, data.language) == ("mit", ["de", "en"])
    assert (data.tags or [])[-2:] == ["legal", "sentence-similarity"]


@pytest.mark.parametrize(
    "card",
    [None, b"# No front matter", CARD.encode(), b"---\nlicense: mit\n" + b"#" * MAX_YAML_BYTES],
    ids=["no card", "no front matter", "front matter that runs code", "too large"],
)
def test_a_card_without_facts_is_no_error(
    card: bytes | None, hub: Hub, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.add(REPO, files if card is None else {**files, "README.md": card})
    source = locate_or_download(resolve(REPO))
    convert(source, tmp_path / "model")
    manifest = load_checkpoint(tmp_path / "model").manifest
    assert (manifest.licence, manifest.languages, manifest.tags) == (None, [], [])
    if card is None or len(card) > MAX_YAML_BYTES:
        assert hub.sent("README.md") == 0 and "README.md" not in source.digests


def test_a_cache_without_the_card_is_enough_offline(hub: Hub, files: dict[str, bytes]) -> None:
    """Earlier versions downloaded no card."""
    hub.add(REPO, {**files, "README.md": STATED.encode()})
    locate_or_download(resolve(REPO))
    for path in Path(constants.HF_HUB_CACHE).rglob("README.md"):
        path.resolve().unlink()
        path.unlink()
    source = locate_or_download(resolve(REPO), offline=True)
    assert "config.json" in source.digests and "README.md" not in source.digests


def test_a_card_that_was_not_asked_for_is_not_read(
    hub: Hub, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.add(REPO, files)
    source = locate_or_download(resolve(REPO))
    copy = shutil.copytree(source.directory, tmp_path / "copy")
    (copy / "README.md").write_text(STATED)
    listed = CheckpointDir(copy, REPO, repo=REPO, revision=source.revision, digests=source.digests)
    assert convert(listed, None, dry_run=True).licence is None

"""The model card of a directory in the Hub's layout, read by huggingface_hub."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from huggingface_hub import ModelCard

from tests.checkpoints import Make
from tests.conversion.making import pooled_source
from tests.finetuning.making import HERE, labelled, settings
from tests.training.runs import run_training
from zoo.checkpoint import MANIFEST, Manifest, encode_manifest, load_checkpoint
from zoo.conversion.convert import convert
from zoo.finetuning.runs import FineTuneRun
from zoo.hub.registry import RegistryEntry
from zoo.hub.source import CheckpointDir
from zoo.io.digests.files import hash_file

REPO, COMMIT = "someone/tiny", "0123456789" * 4
MINIMAL = {"license", "library_name", "pipeline_tag"}


def card(path: Path) -> tuple[dict[str, Any], str]:
    """Return the metadata and the text of a card."""
    read = ModelCard.load(path / "README.md")
    return read.data.to_dict(), read.text


def converted(
    source: Path,
    tmp_path: Path,
    licence: str | None = "apache-2.0",
    languages: tuple[str, ...] = (),
) -> Path:
    """Convert a checkpoint of a repository to the zoo's layout and back; return the result."""
    row = RegistryEntry(family="bert", licence=licence, languages=languages)
    files = [path for path in source.rglob("*") if path.is_file()]
    digests = {str(path.relative_to(source)): hash_file(path) for path in files}
    origin = CheckpointDir(source, REPO, repo=REPO, revision=COMMIT, digests=digests, row=row)
    convert(origin, tmp_path / "ours")
    convert(CheckpointDir(tmp_path / "ours", str(tmp_path)), tmp_path / "back", to="hub")
    return tmp_path / "back"


def test_the_card_has_the_facts_of_the_manifest(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    metadata, text = card(converted(source, tmp_path, languages=("en",)))
    assert metadata == {
        "license": "apache-2.0",
        "language": ["en"],
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
    }
    manifest = load_checkpoint(tmp_path / "ours").manifest
    assert "| licence | apache-2.0 |" in text
    assert f"[{REPO}](https://huggingface.co/{REPO})" in text and f"| commit | {COMMIT} |" in text
    command = f"zoo convert {REPO} --revision {COMMIT} --head masked-lm --dtype float32"
    assert f"`{command} --to hub -o DIR`" in text
    # what it was made of stays in the manifest
    assert manifest.source is not None and "model.safetensors" in manifest.source.files
    assert [d.blake3 for d in manifest.source.files.values() if d.blake3 in text] == []
    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    ("architecture", "tag"),
    [
        ("BertModel", "feature-extraction"),
        ("BertForSequenceClassification", "text-classification"),
        ("BertForTokenClassification", "token-classification"),
        ("BertForQuestionAnswering", "question-answering"),
        ("BertForMultipleChoice", "multiple-choice"),
    ],
)
def test_the_task_is_that_of_the_head(
    hub_checkpoint: Make, tmp_path: Path, architecture: str, tag: str
) -> None:
    metadata, text = card(converted(hub_checkpoint(architecture), tmp_path, licence=None))
    assert metadata.get("pipeline_tag") == tag
    assert metadata.keys() <= MINIMAL and "license" not in metadata
    assert "| licence | not stated |" in text
    assert ("Labels: `LABEL_0`, `LABEL_1`." in text) is tag.endswith("classification")


def test_a_sentence_encoder_is_of_sentence_transformers(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    metadata, _ = card(converted(pooled_source(hub_checkpoint), tmp_path))
    assert metadata["library_name"] == "sentence-transformers"
    assert metadata["pipeline_tag"] == "sentence-similarity"


def test_the_card_of_a_trained_model_has_its_training(hub_checkpoint: Make, tmp_path: Path) -> None:
    convert(CheckpointDir(hub_checkpoint("BertForMaskedLM"), "source"), tmp_path / "ours")
    path = tmp_path / "ours" / MANIFEST
    manifest = load_checkpoint(tmp_path / "ours").manifest
    training = {
        "command": "zoo pretrain bert '--set=data.train=[/home/secret/a b.tsv, c/d]' ~/runs/",
        "seed": 1,
        "tokens": 12345,
        "settings": {"learning_rate": 1e-4},
        "data": {"train": {"/home/secret/a|b\n<script>": {}}, "rows": {"train": 1000}},
    }
    changed = msgspec.structs.replace(manifest, source=None, training=training)
    path.write_bytes(encode_manifest(msgspec.convert(msgspec.to_builtins(changed), Manifest)))
    convert(CheckpointDir(tmp_path / "ours", "runs/model"), tmp_path / "back", to="hub")
    metadata, text = card(tmp_path / "back")
    assert metadata["pipeline_tag"] == "fill-mask"
    for row in ("| seed | 1 |", "| tokens | 12,345 |", "| learning_rate | 0.0001 |"):
        assert row in text
    assert "| rows, train | 1,000 |" in text and "| data, train | `a`&#124;`b <script>` |" in text
    assert "$ zoo pretrain bert '--set=data.train=[a b.tsv, c/d]' runs\n" in text
    assert "huggingface.co" not in text and "secret" not in text


def with_manifest(model: Path, **fields: Any) -> None:
    """Change fields of a model's manifest, whose digest of itself is right afterwards."""
    manifest = msgspec.structs.replace(load_checkpoint(model).manifest, **fields)
    (model / MANIFEST).write_bytes(encode_manifest(manifest))


@pytest.mark.parametrize(
    "training", [{"data": 1, "metrics": []}, {"data": {"rows": 2, "train": [3]}}]
)
def test_a_record_of_other_types_is_left_out(
    training: dict[str, Any], hub_checkpoint: Make, tmp_path: Path
) -> None:
    convert(CheckpointDir(hub_checkpoint("BertForMaskedLM"), "source"), tmp_path / "ours")
    with_manifest(tmp_path / "ours", training={"seed": 1, **training})
    convert(CheckpointDir(tmp_path / "ours", "model"), tmp_path / "back", to="hub")
    _, text = card(tmp_path / "back")
    assert "| seed | 1 |" in text and "data, train" not in text


def test_the_metrics_of_the_training_are_those_of_a_model_without_evaluation(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    convert(CheckpointDir(hub_checkpoint("BertForMaskedLM"), "source"), tmp_path / "ours")
    base = {"source": {"repo": REPO}, "licence": "mit", "languages": ["fr"]}
    start = {"models": {"model": base}}
    training = {
        "task": "fill-mask",
        "data": {"eval": {"/home/secret/dev.tsv": {}}},
        "metrics": {"accuracy": 0.75},
        "init_from": start,
    }
    with_manifest(tmp_path / "ours", training=training)
    convert(
        CheckpointDir(tmp_path / "ours", "model"), tmp_path / "back", to="hub", licence="apache-2.0"
    )
    read = ModelCard.load(tmp_path / "back" / "README.md")
    (result,) = read.data.eval_results or []
    assert (result.dataset_name, result.metric_type, result.metric_value) == (
        "dev.tsv",
        "accuracy",
        0.75,
    )
    assert read.data.base_model == REPO and read.data.license == "apache-2.0"
    assert read.data.language == ["fr"]
    assert "| licence of the base model | mit |" in read.text and "secret" not in read.text


def test_the_licence_is_that_of_the_sources_card(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertModel")
    (source / "README.md").write_text("---\nlicense: mit\n---\n# A card\n")
    convert(CheckpointDir(source, "source"), tmp_path / "ours")
    assert load_checkpoint(tmp_path / "ours").manifest.licence == "mit"
    (source / "README.md").write_text("---\nlicense: [\n---\n")
    convert(CheckpointDir(source, "source"), tmp_path / "other")
    assert load_checkpoint(tmp_path / "other").manifest.licence is None


def test_conversion_is_repeatable_to_the_byte(hub_checkpoint: Make, tmp_path: Path) -> None:
    back = converted(hub_checkpoint("BertForMaskedLM"), tmp_path)
    convert(CheckpointDir(tmp_path / "ours", "elsewhere"), tmp_path / "again", to="hub")
    names = sorted(str(path.relative_to(back)) for path in back.rglob("*") if path.is_file())
    assert "README.md" in names
    for name in names:
        assert (back / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    listed = json.loads((back / ".zoo.json").read_text())["files"]
    assert sorted(listed) == sorted(set(names) - {".zoo.json"})


def test_a_licence_that_is_no_identifier_is_in_the_text_alone(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    path = converted(hub_checkpoint("BertModel"), tmp_path, "not stated: see\npaper")
    front = (path / "README.md").read_text().split("---")[1]
    assert "license" not in yaml.safe_load(front)
    assert "| licence | not stated: see paper |" in (path / "README.md").read_text()


def test_the_values_of_a_training_are_those_that_took_effect(tmp_path: Path) -> None:
    """Of a run on the CPU, whose precision was left to the device."""
    run_training(tmp_path / "run", "gpt", max_steps=2, precision="auto")
    convert(CheckpointDir(tmp_path / "run" / "model", "model"), tmp_path / "back", to="hub")
    training = load_checkpoint(tmp_path / "run" / "model").manifest.training
    assert training is not None
    corpus = json.loads(next((tmp_path / "run").glob("run.json")).read_text())["corpus"]
    tokens = json.loads((Path(corpus) / "corpus.json").read_text())["splits"]["train"]["tokens"]
    _, text = card(tmp_path / "back")
    for row in ("| steps | 2 |", "| tokens | 512 |", "| batch_size | 4 |", "| seq_len | 64 |"):
        assert row in text
    assert f"| epochs | {round(2 * 4 * 64 / tokens, 4)} |" in text
    assert "| precision | float32 |" in text and "auto" not in text


def test_a_number_of_steps_takes_effect_in_place_of_passes(tmp_path: Path) -> None:
    train = labelled(tmp_path / "train.tsv", 40)
    values = settings("bert", train, max_steps=3, batch_size=8, size="tiny")
    FineTuneRun(values, HERE, tmp_path / "run").start()
    training = load_checkpoint(tmp_path / "run" / "model").manifest.training
    assert training is not None
    rows = training["data"]["rows"]["train"]
    assert training["epochs"] == round(3 * 8 / rows, 4)
    assert training["settings"]["batch_size"] == 8
    assert "num_train_epochs" not in training["settings"]

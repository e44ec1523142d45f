"""Conversion of a TensorFlow 1 checkpoint to the zoo's layout and the Hub's."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from zoo.conversion.cache import resolve_checkpoint
from zoo.conversion.convert import convert
from zoo.conversion.report import ConversionReport
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.hub.reference import resolve
from zoo.hub.source import CheckpointDir, locate_or_download

DATA = Path(__file__).parents[1] / "fixtures" / "tensorflow"
STEM = "bert_model.ckpt"
CONFIG = {
    "vocab_size": 19,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 10,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory in the layout of Google's releases: bert_config.json, checkpoint, vocab.txt."""
    folder = tmp_path / "uncased_L-2"
    folder.mkdir()
    for path in DATA.glob(f"{STEM}.*"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmn"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return folder


def ours(source: Path, target: Path) -> ConversionReport:
    return convert(CheckpointDir(source, str(source)), target)


def test_weights_are_converted_and_optimizer_slots_ignored(source: Path, tmp_path: Path) -> None:
    report = ours(source, tmp_path / "ours")
    assert (report.format, report.head) == ("tensorflow", "pretraining")
    values = np.load(DATA / "values.npz")
    weights = [n for n in values if n.startswith(("bert|", "cls|")) and "adam" not in n]
    assert sum(len(copy.names) for copy in report.mapping.copies) == len(weights)
    assert len(report.mapping.drops) == 2 * len(weights) + 1
    assert [drop for drop in report.mapping.drops.values() if "optimizer" not in drop.reason] == []
    stored = load_file(tmp_path / "ours" / "model.safetensors")
    layer = "bert|encoder|layer_1|attention|self|"
    qkv = [values[f"{layer}{part}|kernel"].T for part in ("query", "key", "value")]
    assert np.array_equal(stored["layers.1.attention.qkv.weight"], np.concatenate(qkv))
    assert np.array_equal(
        stored["embeddings.norm.weight"], values["bert|embeddings|LayerNorm|gamma"]
    )
    table = values["cls|seq_relationship|output_weights"]
    assert np.array_equal(stored["head.next_sentence.weight"], table)


def test_outputs_match_the_formula(source: Path, tmp_path: Path) -> None:
    """The expected values are computed by the formulas of modeling.py, in float64."""
    ours(source, tmp_path / "ours")
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "hub", to="hub")
    kind = getattr(transformers, "BertForPreTraining")  # noqa: B009 (wrong type stub)
    model, loading = kind.from_pretrained(tmp_path / "hub", output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    ids = torch.tensor([[2, 5, 9, 3]])
    pooled = model.double().eval().bert(ids).pooler_output.detach().numpy()
    assert np.allclose(pooled, by_hand(ids.numpy()), atol=1e-12)


def by_hand(ids: np.ndarray) -> np.ndarray:
    """Compute the pooled output from the variables with the formulas of google-research/bert."""
    from math import erf, sqrt

    values = np.load(DATA / "values.npz")

    def get(name: str) -> np.ndarray:
        return np.asarray(values["bert|" + name.replace("/", "|")], np.float64)

    def dense(x: np.ndarray, name: str) -> np.ndarray:
        return np.asarray(x @ get(f"{name}/kernel") + get(f"{name}/bias"))

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return np.asarray(x * get(f"{name}/LayerNorm/gamma") + get(f"{name}/LayerNorm/beta"))

    def gelu(x: np.ndarray) -> np.ndarray:
        return np.asarray(x * np.vectorize(lambda v: (1 + erf(v / sqrt(2))) / 2)(x))

    x = (
        get("embeddings/word_embeddings")[ids[0]]
        + get("embeddings/position_embeddings")[: ids.size]
    )
    x = norm(x + get("embeddings/token_type_embeddings")[0], "embeddings")
    for i in range(2):
        layer = f"encoder/layer_{i}"
        q, k, v = (
            dense(x, f"{layer}/attention/self/{part}").reshape(-1, 2, 4).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = np.exp(q @ k.transpose(0, 2, 1) / 2)
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(-1, 8)
        x = norm(x + dense(mixed, f"{layer}/attention/output/dense"), f"{layer}/attention/output")
        inner = gelu(dense(x, f"{layer}/intermediate/dense"))
        x = norm(x + dense(inner, f"{layer}/output/dense"), f"{layer}/output")
    return np.asarray(np.tanh(dense(x[:1], "pooler/dense")))


@pytest.mark.parametrize("end", ["", ".index"])
def test_path_selects_one_of_several(source: Path, tmp_path: Path, end: str) -> None:
    """A checkpoint can be given by its prefix, as in TensorFlow, or by its index file."""
    for path in DATA.glob("kinds.ckpt.*"):
        (source / path.name).write_bytes(path.read_bytes())
    with pytest.raises(UsageError, match="several"):
        ours(source, tmp_path / "ours")
    named = resolve(str(source / f"{STEM}{end}"))
    report = convert(locate_or_download(named), tmp_path / "ours")
    assert (report.format, report.head) == ("tensorflow", "pretraining")
    assert report.sources.keys() >= {f"{STEM}.index", "bert_config.json", "vocab.txt"}
    assert not [name for name in report.sources if name.startswith("kinds")]
    first = resolve_checkpoint(str(source / f"{STEM}{end}"))
    assert first.head_name == "pretraining"
    with pytest.raises(VerificationError):  # the other checkpoint has other tensors
        resolve_checkpoint(str(source / "kinds.ckpt"))


def test_path_without_checkpoint(source: Path) -> None:
    next(source.glob("*.data-*")).unlink()
    with pytest.raises(SourceError, match="no weights in a known format"):
        convert(locate_or_download(resolve(str(source / STEM))), source / "ours")
    with pytest.raises(UsageError, match=r"gone\.ckpt does not exist"):
        resolve(str(source / "gone.ckpt"))


def test_damage_leaves_nothing(source: Path, tmp_path: Path) -> None:
    path = next(source.glob("*.data-*"))
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    with pytest.raises(VerificationError, match="checksum"):
        ours(source, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()

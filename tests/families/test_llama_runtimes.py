"""The decoders in CTranslate2 and GGUF, and what neither holds."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tests.families import parity
from tests.families.test_llama import CONFIGS, LLAMA
from tests.families.test_llama_tokenizers import one_digit, three_digits, with_dummy_space
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.exporting.gate import export_model
from zoo.exporting.targets import find_target
from zoo.exporting.targets.base import ExportSettings
from zoo.exporting.targets.gguf.llama import llama_problem
from zoo.exporting.targets.gguf.vocabulary import split_name
from zoo.families.runtimes import RuntimeModel
from zoo.hub.source import CheckpointDir
from zoo_llama.runtimes import RotatedQKV

GGUF = find_target("gguf")
needs_llama = pytest.mark.skipif(llama_problem() is not None, reason="llama.cpp is not installed")
PLAIN = ["llama", "llama-biases", "llama-wide-heads", "mistral-global", "qwen2", "qwen3"]
LOCAL = "it has no attention that is limited to a window"
AFTER = "its norms precede attention and feed-forward network"
REFUSED = {
    "mistral": LOCAL,
    "qwen2-local": LOCAL,
    "gemma2": LOCAL,
    "smollm3": "it rotates queries and keys in all layers",
    "olmo2": AFTER,
    "gemma3-bidirectional": "a token attends to earlier tokens only",
    "llama-wavelengths": "llama3",
    "qwen2-yarn": "yarn",
}


@pytest.mark.parametrize("target", ["ctranslate2", "gguf"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_runtime_does_not_compute_is_refused(target: str, name: str) -> None:
    head = "causal-lm"
    assert REFUSED[name] in str(LLAMA.runtime_model(target, CONFIGS[name], head))


@pytest.mark.parametrize("target", ["ctranslate2", "gguf"])
def test_other_heads_are_refused(target: str) -> None:
    for head in ("none", "sequence-classification", "token-classification"):
        assert "language model" in str(LLAMA.runtime_model(target, CONFIGS["llama"], head))


def published(name: str, folder: Path, write: Any = three_digits, **changes: Any) -> Any:
    """Write a model of the reference library with a tokenizer; return its checkpoint."""
    config = replace(CONFIGS[name], pad_token_id=None)
    source = folder / "source"
    source.mkdir()
    settings = write(source)
    rows = Tokenizer.from_file(str(source / "tokenizer.json")).get_vocab_size()
    config = replace(config, vocab_size=rows, labels=("a", "b"), **changes)
    parity.save_reference(LLAMA, config, "causal-lm", source)
    weights = load_file(source / "model.safetensors")
    # As small as trained ones, so that rounding does not grow from block to block.
    save_file(
        {name: tensor * 0.2 for name, tensor in weights.items()}, source / "model.safetensors"
    )
    (source / "tokenizer_config.json").write_text(json.dumps(settings))
    convert(CheckpointDir(source, "source"), folder / "ours")
    return load_checkpoint(folder / "ours")


@pytest.mark.parametrize("name", ["qwen3"])
def test_ctranslate2_computes_the_same(name: str, tmp_path: Path) -> None:
    """The gate compares its logits with torch's."""
    checkpoint = published(name, tmp_path)
    report = export_model(
        find_target("ctranslate2"), checkpoint, tmp_path / "export", ExportSettings()
    )
    assert report.validated


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PLAIN if name != "qwen3"])
def test_ctranslate2_computes_the_same_for_others(name: str, tmp_path: Path) -> None:
    checkpoint = published(name, tmp_path)
    target = find_target("ctranslate2")
    assert export_model(target, checkpoint, tmp_path / "export", ExportSettings()).validated


IN_LLAMA_CPP: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama-biases", {"mlp_bias": False}),
    ("llama-linear", {}),
    ("llama-wide-heads", {"activation": "silu"}),
    ("mistral-global", {}),
    ("qwen2", {}),
    ("qwen3", {}),
]


@pytest.mark.long
@needs_llama
@pytest.mark.parametrize(("name", "changes"), IN_LLAMA_CPP, ids=str)
def test_llama_cpp_computes_the_same(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """The gate compares its logits with torch's, and its tokens of texts with the tokenizer's."""
    checkpoint = published(name, tmp_path, hidden_size=64, **changes)
    report = export_model(GGUF, checkpoint, tmp_path / "export", ExportSettings())
    assert report.validated and report.tokenizer is not None
    assert report.tokenizer.different == []


@pytest.mark.long
@needs_llama
def test_llama_cpp_does_not_compose_letters_for_qwen(tmp_path: Path) -> None:
    """Its tokenizer does, as the Hub's configuration says: NFC. All other texts are as here."""
    checkpoint = published("qwen3", tmp_path, one_digit, hidden_size=64)
    settings = ExportSettings(allow_tokenizer_differences=True)
    report = export_model(GGUF, checkpoint, tmp_path / "export", settings)
    assert report.tokenizer is not None
    (text,) = report.tokenizer.different
    assert unicodedata.normalize("NFC", text) != text


def as_gguf(checkpoint: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a GGUF file without running it."""
    monkeypatch.setattr(type(GGUF), "runtime_problem", lambda self: "it is not here")
    export_model(GGUF, checkpoint, folder, ExportSettings(unverified=True))
    return folder / "model.gguf"


# The reference library does not read how a file scales rotations, nor the width of heads.
UNREAD = ("llama-linear", "qwen3")


@pytest.mark.by_default("mistral-global")
@pytest.mark.parametrize("name", ["llama", "llama-linear", "mistral-global", "qwen2", "qwen3"])
def test_a_gguf_file_is_that_of_the_reference(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference library reads the file, and its logits are those of the source."""
    activation = {"hidden_size": 48, "intermediate_size": 80}
    checkpoint = published(name, tmp_path, **activation)
    file = as_gguf(checkpoint, tmp_path / "export", monkeypatch)
    kind: Any = transformers.AutoModelForCausalLM
    source = kind.from_pretrained(tmp_path / "source").eval()
    ids = torch.randint(0, 300, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = source(ids).logits
        if name not in UNREAD:
            read = kind.from_pretrained(file.parent, gguf_file=file.name).eval()
            assert (read(ids).logits - expected).abs().max() <= 1e-5 * expected.abs().max()
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / file.name).write_bytes(file.read_bytes())
    convert(CheckpointDir(alone, "alone"), tmp_path / "again")
    again = load_checkpoint(tmp_path / "again")
    tensors = load_file(tmp_path / "ours" / "model.safetensors")
    same = load_file(tmp_path / "again" / "model.safetensors")
    assert same.keys() == tensors.keys()
    for key, tensor in tensors.items():
        assert torch.equal(same[key], tensor), key
    model = LLAMA.model(again.config, "causal-lm").eval()
    model.load_state_dict(same)
    with torch.no_grad():
        logits = model(ids)["logits"]
    assert (logits - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_rotated_pairs_are_neighbours_in_the_format() -> None:
    op = RotatedQKV(3, (8, 4, 4), 4)
    rows = np.arange(16)[:, None]
    queries, keys, values = op.to_hub(rows)
    assert queries[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert keys[:, 0].tolist() == [8, 10, 9, 11] and values[:, 0].tolist() == [12, 13, 14, 15]
    assert np.array_equal(op.from_hub((queries, keys, values), rows.shape), rows)


def test_sentencepiece_is_not_described_as_another_tokenizer(tmp_path: Path) -> None:
    checkpoint = published("llama", tmp_path, with_dummy_space)
    with pytest.raises(UsageError, match="SentencePiece's BPE"):
        GGUF.check_model(checkpoint, ExportSettings())


def test_splits_have_the_names_of_llama_cpp(tmp_path: Path) -> None:
    names = {}
    for write in (three_digits, one_digit):
        write(tmp_path)
        names[write.__name__] = split_name(json.loads((tmp_path / "tokenizer.json").read_text()))
    assert names == {"three_digits": "llama-bpe", "one_digit": "qwen2"}
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    steps = {"type": "Sequence", "pretokenizers": [digits, bytes_only]}
    assert split_name({"pre_tokenizer": bytes_only}) == "gpt-2"
    assert split_name({"pre_tokenizer": steps}) == "smollm"
    assert split_name({"pre_tokenizer": {"type": "Whitespace"}}) is None


def test_settings_are_read_by_their_names() -> None:
    """Heads may be wider than the width by their number."""
    model = LLAMA.runtime_model("gguf", CONFIGS["qwen3"], "causal-lm")
    assert isinstance(model, RuntimeModel) and model.architecture == "qwen3"
    assert model.settings["attention.key_length"] == 16
    assert model.settings["attention.head_count_kv"] == 2

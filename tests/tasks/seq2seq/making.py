"""T5 models with a tokenizer, and pairs of texts for them."""

import json
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.finetuning.making import settings, write_table
from tests.inference.conftest import converted
from tests.tokenizers.texts import prose
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir

PIECES, SENTINELS = 700, 100
LIMIT = 40


@cache
def spiece() -> bytes:
    """A SentencePiece model file with the special tokens at their published ids."""
    import sentencepiece

    with tempfile.TemporaryDirectory() as scratch:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(prose(2500)),
            model_prefix=f"{scratch}/m",
            vocab_size=PIECES,
            num_threads=1,
            minloglevel=2,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
        )
        return (Path(scratch) / "m.model").read_bytes()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import transformers

    path = tmp_path_factory.mktemp("seq2seq") / "hub"
    kind: Any = transformers.T5Config
    config = kind(
        vocab_size=PIECES + SENTINELS,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        decoder_start_token_id=0,
    )
    model: Any = transformers.T5ForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(torch.empty(config.vocab_size, 32))
    generator = torch.Generator().manual_seed(6)
    for name, parameter in model.named_parameters():
        scale = 0.3 if parameter.dim() == 1 else 1.5 * parameter.shape[-1] ** -0.5
        torch.nn.init.normal_(parameter, std=scale, generator=generator)
        if "layer_norm" in name:
            parameter.data += 1
    model.save_pretrained(path)
    (path / "spiece.model").write_bytes(spiece())
    (path / "tokenizer_config.json").write_text(
        json.dumps({"model_max_length": LIMIT, "extra_ids": SENTINELS})
    )
    return path


@pytest.fixture(scope="module")
def path(hub: Path) -> Path:
    convert(CheckpointDir(hub, "test"), hub.parent / "ours")
    return hub.parent / "ours"


TASK = "seq2seq"
WORDS = ("the", "cat", "sat", "on", "a", "mat", "dog", "house", "tree", "road")


@pytest.fixture(scope="module")
def t5_hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in the Hub's layout, without dropout."""
    import transformers

    path = tmp_path_factory.mktemp("t5") / "hub"
    torch.manual_seed(5)
    kind: Any = transformers.T5Config
    config = kind(
        vocab_size=PIECES + SENTINELS,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    transformers.T5ForConditionalGeneration(config).save_pretrained(path)
    (path / "spiece.model").write_bytes(spiece())
    (path / "tokenizer_config.json").write_text(json.dumps({"extra_ids": SENTINELS}))
    return path


@pytest.fixture(scope="module")
def model(t5_hub: Path) -> Path:
    return converted(t5_hub, t5_hub.parent / "ours").path


def sentences(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(2, 9))) for _ in range(count)]


def pairs(path: Path, count: int = 40, seed: int = 0) -> Path:
    """Write sentences whose target is their first word, or all their words in the same order."""
    rows = [
        {"in": text, "out": text.split()[0] if k % 2 else text}
        for k, text in enumerate(sentences(count, seed))
    ]
    return write_table(path, rows)


def tree_of(model: Path, *files: str | Path, **changes: Any) -> dict[str, Any]:
    data = {"text": "in", "label": "out", **changes.pop("data", {})}
    tree = settings(model, Path("unused"), task=TASK, data=data, **changes)
    tree["data"]["train"] = [str(file) for file in files]
    return tree


def kind(text: str) -> int:
    """Return a class of texts that a tiny model learns, by their first word."""
    return WORDS.index(text.split()[0]) % 2

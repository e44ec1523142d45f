"""GPT models with a tokenizer, and prompts for them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.finetuning.making import write_table
from tests.tokenizers.texts import prose
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.exporting.session import open_session
from zoo.hub.source import CheckpointDir

SENTENCES = [
    "the cat sat on the mat.",
    "a dog ran to the caf\u00e9.",
    "\u65e5\u672c \U0001f600",
    "",
]
LONGEST = 64
MakeSource = Callable[..., Path]


def train_tokenizer(path: Path) -> int:
    """Write the files of a byte-level tokenizer; return its vocabulary size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    end = "<|endoftext|>"
    trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=[end], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(SENTENCES[:3], trainer)
    tokenizer.save(str(path / "tokenizer.json"))
    named = {"bos_token": end, "eos_token": end, "unk_token": end, "model_max_length": LONGEST}
    (path / "tokenizer_config.json").write_text(json.dumps(named))
    return tokenizer.get_vocab_size()


@pytest.fixture
def source(tmp_path: Path) -> MakeSource:
    def make(architecture: str = "GPT2LMHeadModel") -> Path:
        import transformers

        path = tmp_path / "hub"
        path.mkdir()
        size = train_tokenizer(path)
        kind = getattr(transformers, architecture)
        model = kind(
            kind.config_class(
                vocab_size=size, n_embd=32, n_layer=2, n_head=4, n_positions=LONGEST, eos_token_id=0
            )
        )
        generator = torch.Generator().manual_seed(3)
        for name, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, std=0.25, generator=generator)
            if "ln_" in name and name.endswith("weight"):
                parameter.data += 1
        model.save_pretrained(path)
        convert(CheckpointDir(path, "test"), tmp_path / "ours")
        return tmp_path / "ours"

    return make


@pytest.fixture
def path(source: MakeSource) -> Path:
    return source()


def opened(path: Path, backend: str = "cpu") -> Model:
    checkpoint = load_checkpoint(path)
    return Model(checkpoint, open_session(checkpoint, backend))


LINES = [line.strip() for line in prose(1500) if 10 < len(line.strip()) < 40]


def prompts(path: Path, count: int = 40, first: int = 0) -> Path:
    """Write lines, cut after their first word; some prompts end in a space, one is empty."""
    rows = []
    for k, line in enumerate(LINES[first : first + count]):
        start, _, rest = line.partition(" ")
        prompt = "" if k == 3 else start + " " * (k % 2)
        rows.append({"text": prompt, "label": line if k == 3 else " " * (1 - k % 2) + rest})
    return write_table(path, [row for row in rows if row["label"].strip()])

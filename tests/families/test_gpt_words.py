"""The first GPT with its word-level tokenizer, from vocabulary files to ``zoo run``."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner

from tests.tokenizers.trained import words
from zoo.cli.inference.run import command
from zoo.conversion import convert
from zoo.hub.source import CheckpointDir

TEXTS = ["The quick brown fox", "it was the best of times , it was", "zzz caf\u00e9 !"]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in the layout of the first GPT's release, with random weights, named ``hub``."""
    path = tmp_path_factory.mktemp("words") / "hub"
    path.mkdir()
    for name, content in zip(("vocab.json", "merges.txt"), words(), strict=True):
        (path / name).write_text(content, "utf-8")
    size = len(json.loads((path / "vocab.json").read_text("utf-8")))
    shape: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    model = transformers.OpenAIGPTLMHeadModel(
        transformers.OpenAIGPTConfig(vocab_size=size, **shape)
    )
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=0.25, generator=generator)
        if "ln_" in name and name.endswith("weight"):
            parameter.data += 1
    model.save_pretrained(path)
    convert(CheckpointDir(path, "test"), path.parent / "ours")
    return path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, ["generate", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("beams", [1, 3])
def test_texts_are_the_references(published: Path, beams: int) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(published)
    reference: Any = transformers.OpenAIGPTLMHeadModel.from_pretrained(published)
    options = ("--max-new-tokens", "15", "--num-beams", str(beams))
    lines = run(str(published.parent / "ours"), *TEXTS, *options).splitlines()
    for text, line in zip(TEXTS, lines, strict=True):
        ids = tokenizer(text, return_tensors="pt").input_ids
        continued = reference.generate(ids, max_new_tokens=15, do_sample=False, num_beams=beams)[0]
        before, whole = str(tokenizer.decode(ids[0])), str(tokenizer.decode(continued))
        assert len(continued) == ids.shape[1] + 15 and whole.startswith(before)
        generated = whole[len(before) :]
        assert json.loads(line) == {"text": text, "generated": generated, "stopped": "length"}


def test_words_are_streamed(published: Path) -> None:
    path, options = str(published.parent / "ours"), ("--max-new-tokens", "15")
    lines = run(path, *TEXTS, *options).splitlines()
    streamed = run(path, *TEXTS, "--stream", *options)
    assert streamed == "".join(json.loads(line)["generated"] + "\n" for line in lines)

"""The first GPT with its word-level tokenizer, from vocabulary files to ``zoo run``."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from click.testing import CliRunner

from tests.families.making import published_gpt as published_gpt
from zoo.cli.inference.run import command

TEXTS = ["The quick brown fox", "it was the best of times , it was", "zzz caf\u00e9 !"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, ["generate", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("beams", [1, 3])
def test_texts_are_the_references(published_gpt: Path, beams: int) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(published_gpt)
    reference: Any = transformers.OpenAIGPTLMHeadModel.from_pretrained(published_gpt)
    options = ("--max-new-tokens", "15", "--num-beams", str(beams))
    lines = run(str(published_gpt.parent / "ours"), *TEXTS, *options).splitlines()
    for text, line in zip(TEXTS, lines, strict=True):
        ids = tokenizer(text, return_tensors="pt").input_ids
        continued = reference.generate(ids, max_new_tokens=15, do_sample=False, num_beams=beams)[0]
        before, whole = str(tokenizer.decode(ids[0])), str(tokenizer.decode(continued))
        assert len(continued) == ids.shape[1] + 15 and whole.startswith(before)
        generated = whole[len(before) :]
        assert json.loads(line) == {"text": text, "generated": generated, "stopped": "length"}


def test_words_are_streamed(published_gpt: Path) -> None:
    path, options = str(published_gpt.parent / "ours"), ("--max-new-tokens", "15")
    lines = run(path, *TEXTS, *options).splitlines()
    streamed = run(path, *TEXTS, "--stream", *options)
    assert streamed == "".join(json.loads(line)["generated"] + "\n" for line in lines)

"""Snippets of model cards: how each program that can open a model runs it."""

# tests/conversion/test_usage.py runs them.

import re
from collections.abc import Iterator
from dataclasses import dataclass

from zoo.families.base import GENERATING, Family, Head
from zoo.families.config import Config
from zoo.families.tasks import TaskSpec
from zoo.hub.upload.plan import PLACEHOLDER as REPO
from zoo.io.page_text import markdown_block, shell_line

# Text that a shell takes as it is between double quotes.
_IN_QUOTES = re.compile(r"[\w <>\[\]|.,:/-]*")
TEXTS = ("A text.", "Another text.")
PIPELINES = {  # tag of the Hub -> what a pipeline of transformers takes
    "text-classification": '"A text."',
    "token-classification": '"A text."',
    "feature-extraction": '"A text."',
    "text-generation": '"A text", max_new_tokens=20',
    "fill-mask": 'f"A text with a {model.tokenizer.mask_token} in it."',
}


@dataclass(frozen=True)
class UsedModel:
    """What snippets need to know of a model."""

    family: Family  # family of the model
    config: Config  # its configuration
    head_name: str
    task: TaskSpec | None  # task of the head, if any
    pooled: bool  # whether it is a sentence encoder
    mask_token: str | None = None  # the mask token of its tokenizer, if any
    # class of sentence-transformers that opens a sentence encoder
    encoder: str = "SentenceTransformer"

    @property
    def head(self) -> Head:
        """The head."""
        return self.family.heads()[self.head_name]

    @property
    def pipeline_tag(self) -> str | None:
        """Name of the task on the Hub."""
        if self.pooled and "embed" in self.head.tasks:
            return "sentence-similarity"
        if self.task is None:
            return None
        return self.task.pipeline_tag or None


def usage(model: UsedModel) -> Iterator[str]:
    """Yield the lines of a section: a heading and a snippet for each program."""
    programs = []
    if model.family.weight_format == "safetensors":  # Both other programs read only this format.
        if model.pooled:
            programs.append(("sentence-transformers", "python", _sentence_transformers(model)))
        else:
            programs.append(("transformers", "python", _transformers(model)))
    programs.append(("zoo", "console", zoo_snippet(model)))
    yield ""
    yield "## Usage"
    for program, language, lines in programs:
        if lines:
            yield from ("", f"With {program}:", "", *markdown_block(language, lines))


def zoo_snippet(model: UsedModel, reference: str = REPO) -> list[str]:
    """Return the first example of the task's declaration, or one for texts."""
    task = model.task
    if task is None or task.command not in model.head.tasks:
        return []
    start = f"zoo run {task.command} REF "
    for line in task.examples.splitlines():
        if line.strip().startswith(start):
            return [f"$ {line.strip().replace('REF', reference, 1)}"]
    text = "A text."
    if task.pipeline_tag == "fill-mask" and model.mask_token:
        text = f"A text with a {model.mask_token} in it."
    argument = f'"{text}"' if _IN_QUOTES.fullmatch(text) else shell_line([text])
    return [f"$ {f'{start}{argument}'.replace('REF', reference, 1)}"]


def _sentence_transformers(model: UsedModel) -> list[str]:
    return [
        f"from sentence_transformers import {model.encoder}",
        "",
        f'model = {model.encoder}("{REPO}")',
        f"embeddings = model.encode({list(TEXTS)!r})".replace("'", '"'),
        "print(model.similarity(embeddings, embeddings))",
    ]


def _transformers(model: UsedModel) -> list[str]:
    tag = model.pipeline_tag
    if tag in PIPELINES:
        return [
            "from transformers import pipeline",
            "",
            f'model = pipeline("{tag}", model="{REPO}")',
            f"print(model({PIPELINES[tag]}))",
        ]
    name = model.family.architecture(model.config, model.head_name)
    spec = model.task or TaskSpec("", "")
    call = spec.model_call
    if GENERATING.intersection(model.head.tasks):
        call = "tokenizer.batch_decode(model.generate(**inputs, max_new_tokens=20))"
    return [
        f"from transformers import AutoTokenizer, {name}",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("{REPO}")',
        f'model = {name}.from_pretrained("{REPO}")',
        f'inputs = tokenizer({spec.tokenizer_call}, return_tensors="pt")',
        f"print({call})",
    ]

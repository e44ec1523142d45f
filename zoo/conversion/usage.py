"""Snippets of model cards: how each program that can open a model runs it."""

# tests/conversion/test_usage.py runs them.

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from zoo.families.base import GENERATING, Family, Head
from zoo.families.config import Config
from zoo.families.tasks import TaskSpec
from zoo.hub.upload.plan import PLACEHOLDER as REPO
from zoo.io.json import dump_json
from zoo.io.page_text import markdown_block, shell_line
from zoo.sentence_models.cross_encoder_files import PairSettings
from zoo.sentence_models.pooling import DOCUMENT, QUERY, Pooling

# Text that a shell takes as it is between double quotes.
_IN_QUOTES = re.compile(r"[\w <>\[\]|.,:/-]*")
TEXTS = ("A text.", "Another text.")
QUESTION = "A question?"
# tags by which the Hub finds sentence encoders
ENCODER_TAGS = ("sentence-transformers", "sentence-similarity", "feature-extraction")
CROSS_ENCODER_TAGS = ("sentence-transformers", "cross-encoder", "reranker")
PIPELINES = {  # tag of the Hub -> what a pipeline of transformers takes
    "text-classification": '"A text."',
    "token-classification": '"A text."',
    "feature-extraction": '"A text."',
    "text-generation": '"A text", max_new_tokens=20, do_sample=False',
    "fill-mask": 'f"A text with a {model.tokenizer.mask_token} in it."',
}


@dataclass(frozen=True)
class UsedModel:
    """What snippets need to know of a model."""

    family: Family  # family of the model
    config: Config  # its configuration
    head_name: str
    task: TaskSpec | None  # task of the head, if any
    pooling: Pooling | None = None  # Pooling of a sentence encoder; ``None`` for other models.
    mask_token: str | None = None  # the mask token of its tokenizer, if any
    # numbers of leading dimensions that embeddings may be cut at, the largest first
    dims: tuple[int, ...] = ()
    # whether a cross-encoder of sentence-transformers makes a score of its single logit
    is_cross_encoder: bool = False

    @property
    def pooled(self) -> bool:
        """Whether it is a sentence encoder."""
        return self.pooling is not None

    @property
    def head(self) -> Head:
        """The head."""
        return self.family.heads()[self.head_name]

    @property
    def pipeline_tag(self) -> str | None:
        """Name of the task on the Hub."""
        if self.pooled and "embed" in self.head.tasks:
            return "sentence-similarity"
        if self.is_cross_encoder:
            return "text-ranking"
        if self.task is None:
            return None
        return self.task.pipeline_tag or None

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags by which the Hub finds models of sentence-transformers."""
        if self.pooled:
            return ENCODER_TAGS
        return CROSS_ENCODER_TAGS if self.is_cross_encoder else ()


class Snippet(NamedTuple):
    """A program, and the lines that run a model in it."""

    program: str
    language: str
    lines: list[str]  # empty for a program that cannot run the model


def usage(model: UsedModel) -> Iterator[str]:
    """Yield the lines of a section: a heading and a snippet for each program."""
    snippets = []
    if model.family.weight_format == "safetensors":  # Both other programs read only this format.
        if model.pooling is not None:
            lines = sentence_transformers(model, model.pooling)
            snippets.append(Snippet("sentence-transformers", "python", lines))
        elif model.is_cross_encoder:
            snippets.append(Snippet("sentence-transformers", "python", cross_encoder()))
        else:
            snippets.append(Snippet("transformers", "python", _transformers(model)))
        snippets += library_snippets(model.family)
    snippets.append(Snippet("zoo", "console", zoo_snippet(model)))
    yield ""
    yield "## Usage"
    yield from snippet_lines(snippets)


def library_snippets(family: Family) -> list[Snippet]:
    """Return the snippet of the library that a family comes from, if it has one."""
    example = family.library_example(REPO, code_list(TEXTS))
    if example is None:
        return []
    library, lines = example
    return [Snippet(library, "python", list(lines))]


def embedding_sizes(training: Mapping[str, Any] | None) -> tuple[int, ...]:
    """Return the sizes that embeddings were trained to be cut at, the largest first.

    Args:
        training: record of the training in the manifest.
    """
    options = (training or {}).get("task_args")
    sizes = options.get("matryoshka") if isinstance(options, Mapping) else None
    if not isinstance(sizes, list | tuple):
        return ()
    numbers = [size for size in sizes if isinstance(size, int)]
    return tuple(sorted(numbers, reverse=True))


def scores_pairs(config: Config, activation: str | None, pairs: PairSettings | None = None) -> bool:
    """Return whether a model is a cross-encoder, which makes a score of a single logit.

    Args:
        config: configuration of the model.
        activation: function of the score, see ``ModelFile.score_activation``.
        pairs: settings of pairs, by which a language model may score them.
    """
    if pairs is not None and pairs.logit_score is not None:
        return True
    return activation is not None and len(config.labels) == 1


def snippet_lines(snippets: Iterable[Snippet]) -> Iterator[str]:
    """Yield the lines of a card that show snippets."""
    for snippet in snippets:
        if snippet.lines:
            yield from ("", f"With {snippet.program}:", "")
            yield from markdown_block(snippet.language, snippet.lines)


def example_texts(pooling: Pooling) -> list[str]:
    """Return texts with the prompts that a sentence encoder expects before them."""
    query_prompt = pooling.query_prompt()
    document_prompt = pooling.document_prompt()
    if query_prompt or document_prompt:
        return [query_prompt + QUESTION, document_prompt + TEXTS[0]]
    return [pooling.prompt() + text for text in TEXTS]


def code_list(texts: Iterable[str]) -> str:
    """Return texts as a list of Python or JavaScript, which write strings like JSON."""
    return dump_json(list(texts), ensure_ascii=False)


def zoo_snippet(model: UsedModel, reference: str = REPO, options: str = "") -> list[str]:
    """Return the first example of the task's declaration, or one for texts.

    Args:
        model: the model.
        reference: what stands for the model in a shell.
        options: options of ``zoo run``, such as ``--dtype int8``.
    """
    if options:
        reference = f"{reference} {options}"
    pooling = model.pooling
    if pooling is not None and "embed" in model.head.tasks:
        return _embed_commands(model, pooling, reference)
    if model.is_cross_encoder:
        texts = " ".join(f'"{text}"' for text in TEXTS)
        return [f'$ zoo run rerank {reference} --query "{QUESTION}" {texts}']
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


def _embed_commands(model: UsedModel, pooling: Pooling, reference: str) -> list[str]:
    """Return commands for texts, or for queries and documents, and for shorter embeddings."""
    start = f"$ zoo run embed {reference}"
    texts = " ".join(f'"{text}"' for text in TEXTS)
    commands = []
    for text, names in ((QUESTION, QUERY), (TEXTS[0], DOCUMENT)):
        name = _prompt_name(pooling, names)
        if name is not None:
            commands.append(f'{start} --prompt {shell_line([name])} "{text}"')
    if not commands:
        commands.append(f"{start} {texts}")
    if model.dims:
        commands.append(f"{start} --dim {model.dims[-1]} {texts}")
    return commands


def _prompt_name(pooling: Pooling, names: Iterable[str]) -> str | None:
    """Return the first name whose prompt has a text; ``None`` if there is none."""
    for name in names:
        if pooling.prompts.get(name):
            return name
    return None


def sentence_transformers(
    model: UsedModel, pooling: Pooling, arguments: Iterable[str] = ()
) -> list[str]:
    """Return a snippet that encodes texts with the class for the model.

    Args:
        model: the model.
        pooling: its pooling.
        arguments: further arguments of the class, as Python.
    """
    name = pooling.model_type
    lines = _opened(name, arguments)
    if pooling.query_prompt() or pooling.document_prompt() or name == "MultiVectorEncoder":
        # The library also writes an empty prompt ``document``, which would hide ``passage``.
        document = _prompt_name(pooling, DOCUMENT)
        prompt = "" if document in (None, "document") else f', prompt_name="{document}"'
        lines += [
            f"queries = model.encode_query({code_list([QUESTION])})",
            f"documents = model.encode_document({code_list(TEXTS)}{prompt})",
            "print(model.similarity(queries, documents))",
        ]
    else:
        lines += [
            f"embeddings = model.encode({code_list(TEXTS)})",
            "print(model.similarity(embeddings, embeddings))",
        ]
    if model.dims:
        lines += [
            "",
            f"# Embeddings may be cut at {_sizes(model.dims)} dimensions.",
            f"short = model.encode({code_list(TEXTS)}, truncate_dim={model.dims[-1]}, "
            "normalize_embeddings=True)",
            "print(model.similarity(short, short))",
        ]
    return lines


def cross_encoder(arguments: Iterable[str] = ()) -> list[str]:
    """Return a snippet that scores texts for a question with sentence-transformers.

    Args:
        arguments: further arguments of the class, as Python.
    """
    return [
        *_opened("CrossEncoder", arguments),
        f"pairs = {dump_json(question_pairs())}",
        "scores = model.predict(pairs)",
        "print(scores)",
    ]


def question_pairs(prompt: str = "") -> list[list[str]]:
    """Return a question with each of the example texts.

    Args:
        prompt: text before the question.
    """
    return [[prompt + QUESTION, text] for text in TEXTS]


def _opened(name: str, arguments: Iterable[str]) -> list[str]:
    """Return lines that open the model with a class of sentence-transformers."""
    lines = [f"from sentence_transformers import {name}", ""]
    arguments = list(arguments)
    if not arguments:
        return [*lines, f'model = {name}("{REPO}")']
    lines += [f"model = {name}(", f'    "{REPO}",']
    lines += [f"    {argument}," for argument in arguments]
    return [*lines, ")"]


def _sizes(dims: Iterable[int]) -> str:
    *first, last = map(str, dims)
    return f"{', '.join(first)} or {last}" if first else last


def pipeline_options(model: UsedModel) -> str:
    """Return further arguments of a call of a pipeline of transformers, as Python.

    Without them, its result for a text is a probability even if the model predicts a number, and
    only the best of several labels.
    """
    if model.pipeline_tag != "text-classification":
        return ""
    if model.config.problem_type == "multi_label_classification":
        return ", top_k=None"
    if model.config.problem_type == "regression":
        return ', function_to_apply="none"'
    return ""


def _transformers(model: UsedModel) -> list[str]:
    tag = model.pipeline_tag
    if tag in PIPELINES:
        return [
            "from transformers import pipeline",
            "",
            f'model = pipeline("{tag}", model="{REPO}")',
            f"print(model({PIPELINES[tag]}{pipeline_options(model)}))",
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

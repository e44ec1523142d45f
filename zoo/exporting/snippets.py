"""Snippets in Python that several runtimes share: a runtime with NumPy, and pipelines."""

# tests/exporting/test_snippets.py and targets/test_onnx_snippets.py run them.

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.conversion.usage import (
    PIPELINES,
    TEXTS,
    Snippet,
    UsedModel,
    code_list,
    cross_encoder,
    example_texts,
    pipeline_options,
    question_pairs,
    sentence_transformers,
)
from zoo.exporting.card import text_splitter, used_model
from zoo.hub.upload.plan import PLACEHOLDER
from zoo.io.json import dump_json
from zoo.sentence_models.pooling import Pooling

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

# mode of pooling -> how NumPy computes it of ``tokens`` and ``mask``, which has an axis for numbers
NUMPY_POOLING = {
    "mean": "(tokens * mask).sum(1) / mask.sum(1)",
    "mean_sqrt_len_tokens": "(tokens * mask).sum(1) / mask.sum(1) ** 0.5",
    "cls": "tokens[:, 0]",
    "max": "np.where(mask, tokens, -np.inf).max(1)",
    "lasttoken": "tokens[np.arange(len(tokens)), mask.sum((1, 2)) - 1]",
}
# function of the score of a cross-encoder -> how NumPy computes it of ``scores``
NUMPY_ACTIVATIONS = {"identity": "scores", "sigmoid": "1 / (1 + np.exp(-scores))"}
INPUTS = {  # input of a model -> its values
    "input_ids": "encoding.ids",
    "attention_mask": "encoding.attention_mask",
    "token_type_ids": "encoding.type_ids",
}
# task of the Hub -> ending of the classes of optimum for it
OPTIMUM_CLASSES = {
    "feature-extraction": "FeatureExtraction",
    "fill-mask": "MaskedLM",
    "text-classification": "SequenceClassification",
    "text-generation": "CausalLM",
    "token-classification": "TokenClassification",
}
LABELS = 'labels = json.loads(Path(folder, "config.json").read_text())["id2label"]'


@dataclass(frozen=True)
class Runtime:
    """How Python opens and runs a model in a runtime.

    Attributes:
        program: name of the runtime.
        imports: lines that import it.
        opening: lines that open the model, whose files are in ``folder``.
        run: function from the name of an output to the Python that computes it.
        inputs: names of the inputs that it takes.
        preparation: lines that make the arguments of ``run`` of ``inputs``.
        is_pooled: whether it returns ``sentence_embedding``.
    """

    program: str
    imports: tuple[str, ...]
    opening: tuple[str, ...]
    run: Callable[[str], str]
    inputs: tuple[str, ...]
    preparation: tuple[str, ...] = ()
    is_pooled: bool = False


def max_tokens(checkpoint: "Checkpoint") -> int | None:
    """Return the number of tokens at which an export cuts a text; ``None`` for no limit."""
    pooling = checkpoint.model.pooling
    info = checkpoint.model.tokenizer
    limits = [pooling.max_tokens if pooling else None, info.max_tokens if info else None]
    return min((limit for limit in limits if limit is not None), default=None)


def numpy_snippet(checkpoint: "Checkpoint", runtime: Runtime) -> Snippet:
    """Return Python that needs only a runtime, tokenizers and NumPy."""
    lines = _numpy_lines(checkpoint, runtime)
    return Snippet(runtime.program, "python", lines)


def _numpy_lines(checkpoint: "Checkpoint", runtime: Runtime) -> list[str]:
    info = checkpoint.model.tokenizer
    if info is None or text_splitter(checkpoint) or not set(runtime.inputs) <= set(INPUTS):
        return []
    model = used_model(checkpoint)
    results = _result_lines(checkpoint, model, runtime)
    if not results:
        return []
    imports = ["import numpy as np", "from huggingface_hub import snapshot_download"]
    imports += [*runtime.imports, "from tokenizers import Tokenizer"]
    if LABELS in results:
        imports = ["import json", "from pathlib import Path", "", *imports]
    padding = ""
    if pad := info.special.get("pad"):
        padding = f"pad_id=tokenizer.token_to_id({dump_json(pad)})"
    lines = [
        *imports,
        "",
        f'folder = snapshot_download("{PLACEHOLDER}")',
        'tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")',
        f"tokenizer.enable_padding({padding})",
    ]
    if limit := max_tokens(checkpoint):
        side = "" if info.truncation_side == "right" else f', direction="{info.truncation_side}"'
        lines.append(f"tokenizer.enable_truncation({limit}{side})")
    else:
        lines.append("tokenizer.no_truncation()")
    lines += [*runtime.opening, f"texts = {_texts(checkpoint, model)}"]
    lines += ["encodings = tokenizer.encode_batch(texts)", "inputs = {}"]
    for name in runtime.inputs:
        array = f"np.array([{INPUTS[name]} for encoding in encodings])"
        if name == "token_type_ids" and not info.token_types:
            array = 'np.zeros_like(inputs["input_ids"])'
        lines.append(f'inputs["{name}"] = {array}')
    return [*lines, *runtime.preparation, *results]


def _texts(checkpoint: "Checkpoint", model: UsedModel) -> str:
    """Return Python for the texts or pairs that a model reads."""
    if model.pooling is not None:
        return code_list(example_texts(model.pooling))
    if model.is_cross_encoder:
        pairs = checkpoint.model.pairs
        return dump_json(question_pairs(pairs.prompt() if pairs else ""), ensure_ascii=False)
    return code_list(TEXTS)


def _result_lines(checkpoint: "Checkpoint", model: UsedModel, runtime: Runtime) -> list[str]:
    """Return lines that compute and print the results of ``inputs``; none if they cannot."""
    outputs = checkpoint.onnx_spec.outputs
    pooling = model.pooling
    if runtime.is_pooled:
        if pooling is None or pooling.model_type == "MultiVectorEncoder" or not pools_all(pooling):
            return []
        return [f"embeddings = {runtime.run('sentence_embedding')}", "print(embeddings)"]
    if pooling is not None:
        pooled_lines = numpy_pooling(pooling)
        if not pooled_lines:
            return []
        return [f"tokens = {runtime.run('last_hidden_state')}", *pooled_lines]
    if "last_hidden_state" in outputs:
        return [f"tokens = {runtime.run('last_hidden_state')}", "print(tokens)"]
    if "classify" not in model.head.tasks or "logits" not in outputs:
        return []
    logits = f"logits = {runtime.run('logits')}"
    if "tokens" in outputs["logits"]:
        return [logits, *_label_tokens()]
    if model.is_cross_encoder:
        activation = NUMPY_ACTIVATIONS.get(str(checkpoint.model.score_activation))
        if activation is None:
            return []
        scores = ["scores = logits[:, 0]"]
        if activation != "scores":
            scores.append(f"scores = {activation}")
        return [logits, *scores, "print(scores)"]
    return [logits, *_label_texts(checkpoint)]


def _label_texts(checkpoint: "Checkpoint") -> list[str]:
    """Return lines that print the label of each text, the probabilities of labels, or numbers."""
    problem = checkpoint.config.problem_type
    if problem == "regression":
        return ["print(logits)"]
    if problem == "multi_label_classification":
        return [
            "probabilities = 1 / (1 + np.exp(-logits))",
            LABELS,
            "for row in probabilities:",
            "    print({labels[str(number)]: value for number, value in enumerate(row)})",
        ]
    return [
        "probabilities = np.exp(logits - logits.max(1, keepdims=True))",
        "probabilities /= probabilities.sum(1, keepdims=True)",
        LABELS,
        "for row in probabilities:",
        "    print(labels[str(row.argmax())], row.max())",
    ]


def _label_tokens() -> list[str]:
    """Return lines that print each token with its label."""
    return [
        LABELS,
        "for encoding, row in zip(encodings, logits.argmax(-1)):",
        "    columns = zip(encoding.tokens, encoding.special_tokens_mask, row)",
        "    for token, is_special, number in columns:",
        "        if not is_special:",
        "            print(token, labels[str(number)])",
    ]


def pools_all(pooling: Pooling) -> bool:
    """Return whether the tokens of prompts are like others, which programs do not tell apart."""
    return pooling.pools_prompt or not any(pooling.prompts.values())


def numpy_pooling(pooling: Pooling) -> list[str]:
    """Return lines that compute embeddings of ``tokens``; none where that takes weights."""
    if pooling.modules or pooling.mode not in NUMPY_POOLING or pooling.lowercase:
        return []
    if pooling.model_type != "SentenceTransformer" or not pools_all(pooling):
        return []
    lines = [
        'mask = inputs["attention_mask"][..., None]',
        f"embeddings = {NUMPY_POOLING[pooling.mode]}",
    ]
    if pooling.normalize:
        lines.append("embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)")
    if pooling.truncate_dim is not None:
        lines.append(f"embeddings = embeddings[:, :{pooling.truncate_dim}]")
    return [*lines, "print(embeddings)"]


@dataclass(frozen=True)
class OptimumFiles:
    """The classes of optimum for a runtime, and where they find the model.

    Attributes:
        module: module of the classes.
        prefix: first part of their names.
        arguments: arguments of ``from_pretrained``, as Python.
    """

    module: str
    prefix: str
    arguments: tuple[str, ...]

    def opening(self, class_name: str) -> list[str]:
        """Return lines that open the model."""
        return [
            f"model = {class_name}.from_pretrained(",
            f'    "{PLACEHOLDER}", {", ".join(self.arguments)}',
            ")",
        ]


def optimum_snippet(checkpoint: "Checkpoint", files: OptimumFiles) -> Snippet:
    """Return Python that runs the model in a pipeline, or pools its outputs."""
    model = used_model(checkpoint)
    if model.pooling is not None:
        lines = _optimum_embeddings(checkpoint, model.pooling, files)
    elif model.is_cross_encoder:
        lines = []
    elif "decoder_input_ids" in checkpoint.onnx_spec.inputs:
        lines = _optimum_seq2seq(model, files)
    else:
        lines = _optimum_pipeline(checkpoint, model, files)
    return Snippet("optimum", "python", lines)


def _optimum_embeddings(
    checkpoint: "Checkpoint", pooling: Pooling, files: OptimumFiles
) -> list[str]:
    pooled_lines = numpy_pooling(pooling)
    if not pooled_lines:
        return []
    class_name = f"{files.prefix}FeatureExtraction"
    length = max_tokens(checkpoint)
    limit = f", max_length={length}" if length else ""
    return [
        "import numpy as np",
        f"from {files.module} import {class_name}",
        "from transformers import AutoTokenizer",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("{PLACEHOLDER}")',
        *files.opening(class_name),
        f"texts = {code_list(example_texts(pooling))}",
        f'inputs = tokenizer(texts, padding=True, truncation=True{limit}, return_tensors="np")',
        "tokens = model(**inputs).last_hidden_state",
        *pooled_lines,
    ]


def _optimum_pipeline(checkpoint: "Checkpoint", model: UsedModel, files: OptimumFiles) -> list[str]:
    tag = model.pipeline_tag
    if tag not in OPTIMUM_CLASSES or tag not in PIPELINES:
        return []
    class_name = f"{files.prefix}{OPTIMUM_CLASSES[tag]}"
    return [
        f"from {files.module} import {class_name}",
        "from transformers import AutoTokenizer, pipeline",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("{PLACEHOLDER}")',
        *files.opening(class_name),
        f'model = pipeline("{tag}", model=model, tokenizer=tokenizer)',
        f"print(model({PIPELINES[tag]}{pipeline_options(model)}))",
    ]


def _optimum_seq2seq(model: UsedModel, files: OptimumFiles) -> list[str]:
    class_name = f"{files.prefix}Seq2SeqLM"
    if "seq2seq" not in model.head.tasks:
        return []
    return [
        f"from {files.module} import {class_name}",
        "from transformers import AutoTokenizer",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("{PLACEHOLDER}")',
        *files.opening(class_name),
        f'inputs = tokenizer("{TEXTS[0]}", return_tensors="pt")',
        "ids = model.generate(**inputs, max_new_tokens=20)",
        "print(tokenizer.batch_decode(ids, skip_special_tokens=True))",
    ]


def sentence_transformers_snippet(
    checkpoint: "Checkpoint", arguments: Iterable[str] = ()
) -> Snippet:
    """Return a snippet of sentence-transformers, which encodes texts or scores pairs.

    Args:
        checkpoint: the model of the files.
        arguments: further arguments of the class, as Python.
    """
    model = used_model(checkpoint)
    lines = []
    if model.pooling is not None:
        lines = sentence_transformers(model, model.pooling, arguments)
    elif model.is_cross_encoder:
        lines = cross_encoder(arguments)
    return Snippet("sentence-transformers", "python", lines)

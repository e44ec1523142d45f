"""Snippets of model cards: how each program that opens ONNX graphs runs a sentence encoder."""

# tests/exporting/targets/test_onnx_snippets.py runs them.

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from zoo.conversion.usage import (
    Snippet,
    UsedModel,
    code_list,
    example_texts,
    sentence_transformers,
)
from zoo.hub.upload.plan import PLACEHOLDER
from zoo.io.json import dump_json
from zoo.sentence_models.pooling import Pooling

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.exporting.graph.report import OnnxReport

# dtype of a graph -> its name in Transformers.js
TRANSFORMERS_JS = {"float32": "fp32", "float16": "fp16", "int8": "q8", "int4": "q4"}
# mode of pooling -> its name in Transformers.js
JS_POOLING = {"mean": "mean", "cls": "cls", "lasttoken": "last_token"}
# mode of pooling -> how NumPy computes it of ``tokens`` and ``mask``, which has an axis for numbers
NUMPY_POOLING = {
    "mean": "(tokens * mask).sum(1) / mask.sum(1)",
    "mean_sqrt_len_tokens": "(tokens * mask).sum(1) / mask.sum(1) ** 0.5",
    "cls": "tokens[:, 0]",
    "max": "np.where(mask, tokens, -np.inf).max(1)",
    "lasttoken": "tokens[np.arange(len(tokens)), mask.sum((1, 2)) - 1]",
}
# task of the Hub -> what its pipeline in Transformers.js takes
PIPELINES = {
    "text-classification": '"A text."',
    "token-classification": '"A text."',
    "feature-extraction": '"A text."',
    "text-generation": '"A text"',
    "fill-mask": "`A text with a ${model.tokenizer.mask_token} in it.`",
    "question-answering": '"A question?", "A text."',
}
INPUTS = {  # input of a graph -> its values
    "input_ids": "encoding.ids",
    "attention_mask": "encoding.attention_mask",
    "token_type_ids": "encoding.type_ids",
}


@dataclass(frozen=True)
class ShownGraph:
    """The graph that snippets open.

    Attributes:
        checkpoint: the exported model.
        model: what snippets need to know of it.
        dtype: precision of the graph.
        file: the graph without pooling, such as ``onnx/model.onnx``; ``None`` for a model that
            generates text, which has several.
        pooled: the graph with pooling, if there is one.
    """

    checkpoint: "Checkpoint"
    model: UsedModel
    dtype: str
    file: str | None
    pooled: str | None

    @classmethod
    def from_report(
        cls, checkpoint: "Checkpoint", model: UsedModel, report: "OnnxReport"
    ) -> "ShownGraph":
        """Return the quantized graph if there is one, for it was asked for."""
        pooled = None
        if report.quantized:
            dtype, copies = next(iter(report.quantized.items()))
            files = list(copies.graphs)
            if report.pooled is not None and dtype in report.pooled.quantized:
                (pooled,) = report.pooled.quantized[dtype].graphs
        else:
            dtype = report.dtype
            files = list(report.graphs)
            if report.pooled is not None and report.pooled.kept:
                pooled = report.pooled.file
        file = files[0] if len(files) == 1 and not report.cache else None
        return cls(checkpoint, model, dtype, file, pooled)

    @property
    def takes_tokens(self) -> bool:
        """Whether the graph reads token ids, their mask and their types only."""
        return set(self.checkpoint.onnx_spec.inputs) <= set(INPUTS)

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of tokens of a text."""
        pooling = self.model.pooling
        info = self.checkpoint.model.tokenizer
        limits = [
            pooling.max_tokens if pooling else None,
            info.max_tokens if info else None,
        ]
        return min((limit for limit in limits if limit is not None), default=None)


def onnx_snippets(graph: ShownGraph) -> Iterator[Snippet]:
    """Yield a snippet for each program that computes the model's results from the graph."""
    pooling = graph.model.pooling
    if pooling is None:
        yield Snippet("Transformers.js", "js", _pipeline(graph))
        return
    yield Snippet("Transformers.js", "js", _transformers_js(graph, pooling))
    if graph.file is not None:
        options = [
            'backend="onnx"',
            f'model_kwargs={{"file_name": "{graph.file}"}}',
        ]
        lines = sentence_transformers(graph.model, pooling, options)
        yield Snippet("sentence-transformers", "python", lines)
        yield Snippet("optimum", "python", _optimum(graph, pooling))
    yield Snippet("ONNX Runtime", "python", _onnx_runtime(graph, pooling))


def _pipeline(graph: ShownGraph) -> list[str]:
    """Return a call of a pipeline of Transformers.js."""
    tag = graph.model.pipeline_tag
    if tag not in PIPELINES:
        return []
    return [
        'import { pipeline } from "@huggingface/transformers";',
        "",
        *_opened("pipeline", f'"{tag}", ', graph.dtype),
        f"console.log(await model({PIPELINES[tag]}));",
    ]


def _opened(function: str, task: str, dtype: str, more: str = "") -> list[str]:
    options = f'{{ dtype: "{TRANSFORMERS_JS[dtype]}"{more} }}'
    line = f'const model = await {function}({task}"{PLACEHOLDER}", {options});'
    return [line]


def _transformers_js(graph: ShownGraph, pooling: Pooling) -> list[str]:
    """Return JavaScript that computes embeddings of texts, as they are without any option."""
    if pooling.model_type != "SentenceTransformer" or not _pools_all(pooling):
        return []
    texts = f"const texts = {code_list(example_texts(pooling))};"
    if graph.pooled is not None:
        name = PurePosixPath(graph.pooled).name.removesuffix(".onnx").removesuffix("_quantized")
        limit = f", max_length: {graph.max_tokens}" if graph.max_tokens else ""
        return [
            'import { AutoModel, AutoTokenizer } from "@huggingface/transformers";',
            "",
            f'const tokenizer = await AutoTokenizer.from_pretrained("{PLACEHOLDER}");',
            *_opened("AutoModel.from_pretrained", "", graph.dtype, f', model_file_name: "{name}"'),
            texts,
            f"const inputs = await tokenizer(texts, {{ padding: true, truncation: true{limit} }});",
            "const { sentence_embedding } = await model(inputs);",
            "console.log(sentence_embedding.tolist());",
        ]
    if pooling.modules or pooling.mode not in JS_POOLING or pooling.lowercase:
        return []
    normalize = dump_json(pooling.normalize)
    options = f'{{ pooling: "{JS_POOLING[pooling.mode]}", normalize: {normalize} }}'
    lines = [
        'import { pipeline } from "@huggingface/transformers";',
        "",
        *_opened("pipeline", '"feature-extraction", ', graph.dtype),
        texts,
    ]
    if pooling.mode == "lasttoken":
        # The pipeline takes the last token of the longest text, which is padding of others.
        lines += [
            "for (const text of texts) {",
            f"  const embeddings = await model(text, {options});",
            f"  console.log({_cut(pooling)}.tolist());",
            "}",
        ]
    else:
        lines += [
            f"const embeddings = await model(texts, {options});",
            f"console.log({_cut(pooling)}.tolist());",
        ]
    if graph.model.dims and pooling.mode != "lasttoken":
        size = graph.model.dims[-1]
        lines += [
            "",
            f"const short = embeddings.slice(null, [0, {size}]).normalize(2, -1);",
            "console.log(short.tolist());",
        ]
    return lines


def _cut(pooling: Pooling) -> str:
    if pooling.truncate_dim is None:
        return "embeddings"
    return f"embeddings.slice(null, [0, {pooling.truncate_dim}])"


def _pools_all(pooling: Pooling) -> bool:
    """Return whether the tokens of prompts are like others, which programs do not tell apart."""
    return pooling.pools_prompt or not any(pooling.prompts.values())


def _numpy_pooling(pooling: Pooling) -> list[str]:
    """Return lines that compute embeddings of ``tokens``; none where that takes weights."""
    if pooling.modules or pooling.mode not in NUMPY_POOLING or pooling.lowercase:
        return []
    if pooling.model_type != "SentenceTransformer" or not _pools_all(pooling):
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


def _optimum(graph: ShownGraph, pooling: Pooling) -> list[str]:
    """Return Python that pools the outputs of the graph, which optimum opens."""
    pooled_lines = _numpy_pooling(pooling)
    if not pooled_lines or graph.file is None:
        return []
    path = PurePosixPath(graph.file)
    limit = f", max_length={graph.max_tokens}" if graph.max_tokens else ""
    return [
        "import numpy as np",
        "from optimum.onnxruntime import ORTModelForFeatureExtraction",
        "from transformers import AutoTokenizer",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("{PLACEHOLDER}")',
        "model = ORTModelForFeatureExtraction.from_pretrained(",
        f'    "{PLACEHOLDER}", subfolder="{path.parent}", file_name="{path.name}"',
        ")",
        f"texts = {code_list(example_texts(pooling))}",
        f'inputs = tokenizer(texts, padding=True, truncation=True{limit}, return_tensors="np")',
        "tokens = model(**inputs).last_hidden_state",
        *pooled_lines,
    ]


def _onnx_runtime(graph: ShownGraph, pooling: Pooling) -> list[str]:
    """Return Python that needs only ONNX Runtime, tokenizers and NumPy."""
    info = graph.checkpoint.model.tokenizer
    file = graph.pooled or graph.file
    if info is None or file is None or not graph.takes_tokens:
        return []
    if graph.pooled is None:
        run = ['(tokens,) = session.run(["last_hidden_state"], inputs)']
        pooled_lines = _numpy_pooling(pooling)
        if not pooled_lines:
            return []
        run += pooled_lines
    elif pooling.model_type == "MultiVectorEncoder" or not _pools_all(pooling):
        return []
    else:
        run = ['(embeddings,) = session.run(["sentence_embedding"], inputs)', "print(embeddings)"]
    inputs = []
    for name in graph.checkpoint.onnx_spec.inputs:
        values = INPUTS[name]
        array = f"np.array([{values} for encoding in encodings])"
        if name == "token_type_ids" and not info.token_types:
            array = 'np.zeros_like(inputs["input_ids"])'
        inputs.append(f'inputs["{name}"] = {array}')
    padding = ""
    if pad := info.special.get("pad"):
        padding = f"pad_id=tokenizer.token_to_id({dump_json(pad)})"
    lines = [
        "import numpy as np",
        "from huggingface_hub import snapshot_download",
        "from onnxruntime import InferenceSession",
        "from tokenizers import Tokenizer",
        "",
        f'folder = snapshot_download("{PLACEHOLDER}")',
        'tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")',
        f"tokenizer.enable_padding({padding})",
    ]
    if graph.max_tokens:
        side = "" if info.truncation_side == "right" else f', direction="{info.truncation_side}"'
        lines.append(f"tokenizer.enable_truncation({graph.max_tokens}{side})")
    else:
        lines.append("tokenizer.no_truncation()")
    return [
        *lines,
        f'session = InferenceSession(f"{{folder}}/{file}")',
        f"texts = {code_list(example_texts(pooling))}",
        "encodings = tokenizer.encode_batch(texts)",
        "inputs = {}",
        *inputs,
        *run,
    ]


def run_options(report: "OnnxReport") -> str:
    """Return the option of ``zoo run`` that selects the graph of the snippets; empty for none."""
    if report.graphs and report.quantized:
        return f"--dtype {next(iter(report.quantized))}"
    return ""


def other_precisions(report: "OnnxReport") -> str | None:
    """Return a sentence on the precisions that the snippets do not show; ``None`` if none."""
    names = [*report.quantized]
    if report.graphs and report.quantized:
        names.append(report.dtype)
    if len(names) < 2:
        return None
    parts = []
    for name in names[1:]:
        graphs = report.quantized[name].graphs if name in report.quantized else report.graphs
        files = " and ".join(f"`{file}`" for file in graphs)
        parts.append(f"{files} in {name} (`{TRANSFORMERS_JS[name]}` in Transformers.js)")
    return f"The snippets use {names[0]}. The export also has {'; '.join(parts)}."

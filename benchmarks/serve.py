"""Servers of embeddings under many clients, compared with a plain batch and with other servers.

    python -m benchmarks.serve [--infinity PROGRAM] [--clients 1 8 32 128] [--texts 1 32]

Each of a number of clients sends requests of one text or of several to ``/v1/embeddings``, the next
one after an answer. CPU time is the user and system time of the server and its workers, per
text; a plain batch is one call of ``model.embed`` with the same texts in the same backend.
PROGRAM is ``infinity_emb`` of an environment of its own, since it needs older libraries:

    python -m venv ENV
    ENV/bin/pip install 'infinity-emb[torch,server]'

The other peer is sentence-transformers behind Starlette. First, all servers must return the same
embeddings to 1e-5, and int8 those of a plain batch in int8. The servers are measured alternately,
in a different order in each round.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks._common import machine, table, versions, zoo
from benchmarks._http_load import LoadTiming, ServerProcess, free_port
from benchmarks.embed import packaged_model, sentences

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zoo.api import Backend

    Vectors = NDArray[Any]

NAME = "minilm"
COUNT = 512
AGREE = 1e-5
TORCH = "zoo, torch"
ONNX = "zoo, ONNX"
INT8 = "zoo, ONNX int8"
INFINITY = "infinity-emb"
STARLETTE = "sentence-transformers, Starlette"
ALL_SIDES = (TORCH, ONNX, INT8, INFINITY, STARLETTE)
HEADER = (
    "server",
    "CPU ms/text",
    "of a plain batch",
    f"of {INFINITY}",
    "texts/s",
    "p50 ms",
    "p99 ms",
)


class Source(NamedTuple):
    """What a side of zoo serves.

    Attributes:
        path: the model.
        backend: backend of the session.
    """

    path: Path
    backend: "Backend"


class Case(NamedTuple):
    """A load.

    Attributes:
        clients: number of clients.
        size: number of texts per request.
    """

    clients: int
    size: int


def main() -> None:
    options = parse_options()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from zoo.data.cache import SAMPLE

    texts = sentences(options.corpus or SAMPLE, COUNT)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ZOO_HOME"] = str(Path(scratch, "home"))
        hub = (options.model or packaged_model()).resolve()
        sources = prepare(hub, Path(scratch), options.sides or ALL_SIDES)
        expected, plain = measure_plain(sources, texts, options)
        servers = start(sources, hub, options)
        try:
            for server in servers.values():
                server.wait(request(texts[:1]))
            worst = check_answers(servers, texts, expected)
            tables = [
                measure(servers, Case(clients, size), texts, plain, options)
                for clients in options.clients
                for size in options.texts
            ]
            memory = {name: server.memory_mb() for name, server in servers.items()}
        finally:
            for server in servers.values():
                server.stop()
    print(f"{machine(options.threads)}. {versions('torch', 'onnxruntime', 'uvicorn')}.")
    print(f"Largest difference of float32 embeddings: {worst:.1e}. A plain batch, CPU ms/text:")
    print(", ".join(f"{name} {1e3 * seconds:.2f}" for name, seconds in plain.items()) + ".")
    print("\n".join(tables))
    rows = [[name, f"{size:.0f}"] for name, size in memory.items()]
    print("\n" + table(["server", "memory MB (PSS)"], rows))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, help="folder of .txt files")
    parser.add_argument("--model", type=Path, help="sentence encoder in the Hub's layout")
    parser.add_argument("--infinity", type=Path, help="infinity_emb of another environment")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 32], help="per request")
    parser.add_argument("--sides", nargs="+", help="names of the servers, by default all")
    parser.add_argument("--workers", type=int, default=1, help="workers of zoo serve")
    parser.add_argument("--count", type=int, default=COUNT, help="texts a round, at least")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def prepare(hub: Path, scratch: Path, sides: Sequence[str]) -> dict[str, Source]:
    """Convert the model, which others are compared with; export it in float32 and in int8."""
    model = scratch / NAME
    zoo("convert", hub, "-o", model)
    sources = {TORCH: Source(model, "cpu")}
    if ONNX in sides:
        zoo("export", model, "-o", scratch / "onnx" / NAME)
        sources[ONNX] = Source(scratch / "onnx" / NAME, "onnx")
    if INT8 in sides:
        zoo("export", model, "--only", "int8", "-o", scratch / "int8" / NAME)
        sources[INT8] = Source(scratch / "int8" / NAME, "onnx")
    return sources


def measure_plain(
    sources: Mapping[str, Source], texts: Sequence[str], options: argparse.Namespace
) -> "tuple[dict[str, Vectors], dict[str, float]]":
    """Return the embeddings of plain batches, and their CPU seconds per text, by side."""
    import zoo

    models = {
        name: zoo.load(source.path, backend=source.backend, threads=options.threads)
        for name, source in sources.items()
    }
    vectors = {name: model.embed(texts) for name, model in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(options.rounds):
        for name, model in models.items():
            begin = time.process_time()
            model.embed(texts)
            seconds[name].append((time.process_time() - begin) / len(texts))
    return vectors, {name: statistics.median(values) for name, values in seconds.items()}


def start(
    sources: Mapping[str, Source], hub: Path, options: argparse.Namespace
) -> dict[str, ServerProcess]:
    """Start the servers."""
    commands: dict[str, tuple[list[str], str]] = {}
    for name, source in sources.items():
        words = ["-m", "zoo", "serve", str(source.path), "--backend", source.backend]
        words += ["--threads", str(options.threads), "--workers", str(options.workers)]
        commands[name] = ([sys.executable, *words, "--port"], "/v1/embeddings")
    if options.infinity is not None:
        words = ["v2", "--model-id", str(hub), "--served-model-name", NAME, "--device", "cpu"]
        words += ["--dtype", "float32", "--engine", "torch", "--no-model-warmup", "--port"]
        commands[INFINITY] = ([str(options.infinity), *words], "/embeddings")
    words = ["-m", "benchmarks._sentence_transformers_server", str(hub)]
    commands[STARLETTE] = ([sys.executable, *words], "/v1/embeddings")
    names = options.sides or list(commands)
    servers = {}
    for name in names:
        command, path = commands[name]
        port = free_port()
        quiet = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
        servers[name] = ServerProcess([*command, str(port)], port, path, quiet)
    return servers


def request(texts: Sequence[str]) -> bytes:
    """Return the body of a request of OpenAI's API."""
    return json.dumps({"model": NAME, "input": list(texts)}).encode()


def embeddings(body: bytes) -> list[list[float]]:
    """Return the embeddings of a response of OpenAI's API."""
    rows = json.loads(body)["data"]
    return [row["embedding"] for row in sorted(rows, key=lambda row: row["index"])]


def check_answers(
    servers: Mapping[str, ServerProcess], texts: Sequence[str], expected: "Mapping[str, Vectors]"
) -> float:
    """End the benchmark unless all servers return the embeddings of a plain batch.

    Returns:
        the largest difference of embeddings in float32.
    """
    import numpy as np

    worst = 0.0
    for name, server in servers.items():
        answers = server.send([request([text]) for text in texts[:64]], 8)
        vectors = np.array([embeddings(body)[0] for body in answers.bodies])
        reference = expected[name if name == INT8 else TORCH][:64]
        if name == INT8:  # Its scales depend on what shares a batch, as in any dynamic int8.
            cosine = float((vectors * reference).sum(1).min())
            if cosine < 0.98:
                sys.exit(f"{name}: the smallest cosine with a plain batch is {cosine:.4f}")
            continue
        difference = float(np.abs(vectors - reference).max())
        if not difference <= AGREE:
            sys.exit(f"{name}: the embeddings differ by {difference:.1e}, more than {AGREE:.0e}")
        worst = max(worst, difference)
    return worst


def measure(
    servers: Mapping[str, ServerProcess],
    case: Case,
    texts: Sequence[str],
    plain: Mapping[str, float],
    options: argparse.Namespace,
) -> str:
    """Measure the servers alternately under a load, and return a table."""
    count = max(options.count // case.size, case.clients)
    bodies = []
    for number in range(count):
        first = number * case.size
        bodies.append(request([texts[k % len(texts)] for k in range(first, first + case.size)]))
    timings = {name: LoadTiming() for name in servers}
    names = list(servers)
    for turn in range(options.rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            before = servers[name].cpu_seconds()
            answers = servers[name].send(bodies, case.clients)
            used = servers[name].cpu_seconds() - before
            timings[name].add(used, count * case.size, answers)
        figures = [f"{name} {1e3 * timings[name].cpu_seconds[-1]:.2f}" for name in names]
        head = f"{case}: round {turn + 1} of {options.rounds}, CPU ms/text"
        print(f"{head}: {', '.join(figures)}", file=sys.stderr, flush=True)
    clients = "1 client" if case.clients == 1 else f"{case.clients} clients"
    size = "1 text" if case.size == 1 else f"{case.size} texts"
    return f"\n{clients}, {size} a request:\n\n{case_table(timings, plain)}"


def case_table(timings: Mapping[str, LoadTiming], plain: Mapping[str, float]) -> str:
    """Return the table of a load."""
    rows = []
    for name, timing in timings.items():
        cpu = timing.cpu_per_text
        infinity = ""
        if INFINITY in timings:
            infinity = f"{cpu / timings[INFINITY].cpu_per_text:.2f}"
        rows.append(
            [
                name,
                f"{1e3 * cpu:.2f}",
                f"{cpu / plain[name]:.2f}" if name in plain else "",
                infinity,
                f"{statistics.median(timing.rates):.0f}",
                f"{1e3 * timing.percentile(50):.0f}",
                f"{1e3 * timing.percentile(99):.0f}",
            ]
        )
    return table(HEADER, rows)


if __name__ == "__main__":
    main()

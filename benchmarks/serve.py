"""Servers of embeddings under many clients, compared with a plain batch and with other servers.

    python -m benchmarks.serve [--infinity PROGRAM] [--quick] [--clients 1 8 32 128] [--texts 1 32]

Each of a number of clients sends requests of one text or of several to ``/v1/embeddings``, the next
one after an answer. CPU time is the user and system time of the server and its workers, per
text; a plain batch is one call of ``model.embed`` with the same texts in the same backend, before
each measurement.
PROGRAM is ``infinity_emb`` of an environment of its own, since it needs older libraries:

    python -m venv ENV
    ENV/bin/pip install 'infinity-emb[torch,server]'

The other peer is sentence-transformers behind Starlette. First, all servers must return the same
embeddings to 1e-5, and int8 those of a plain batch in int8. The servers are measured alternately,
in a different order in each round.

``--quick`` measures three loads with fewer texts, in about six minutes on two cores, ``--clients 8
128 --count 256`` four others in about seven, and ``--sides 'zoo, torch' 'zoo, ONNX' --clients 32
--texts 1 --count 256`` one in one minute; all loads take half an hour. ``--record`` writes a row
for each load to the file benchmarks/results.json, from which ``python -m tools.benchmark_results``
draws; rows of other loads stay.
"""

import argparse
import itertools
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

    from zoo.api import Backend, Model

    Vectors = NDArray[Any]

NAME = "minilm"
COUNT = 512
AGREE = 1e-5
INT8_AGREE = 0.95  # cosine
TORCH = "zoo, torch"
ONNX = "zoo, ONNX"
INT8 = "zoo, ONNX int8"
INFINITY = "infinity-emb"
STARLETTE = "sentence-transformers, Starlette"
ALL_SIDES = (TORCH, ONNX, INT8, INFINITY, STARLETTE)
QUICK_COUNT = 256
LARGE_COUNT = 2048  # A round of so many texts is long enough to be measured once.
RESULTS = Path(__file__).with_name("results.json")
SCRIPT = "`python -m benchmarks.serve`"
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

    def __str__(self) -> str:
        clients = "1 client" if self.clients == 1 else f"{self.clients} clients"
        size = "1 text" if self.size == 1 else f"{self.size} texts"
        return f"{clients}, {size} a request"


class Measurement(NamedTuple):
    """The figures of a load.

    Attributes:
        timings: of each server.
        plain: CPU seconds per text of plain batches, by server and round.
    """

    timings: dict[str, LoadTiming]
    plain: dict[str, list[float]]

    def of_plain(self, name: str) -> float:
        """Return the CPU time of a server, relative to a plain batch."""
        return self.timings[name].cpu_per_text / statistics.median(self.plain[name])


USUAL = Case(32, 1)
QUICK_CASES = (Case(1, 1), USUAL, Case(32, 32))


def main() -> None:
    options = parse_options()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import zoo
    from zoo.data.cache import SAMPLE

    texts = sentences(options.corpus or SAMPLE, COUNT)
    measurements: dict[Case, Measurement] = {}
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ZOO_HOME"] = str(Path(scratch, "home"))
        hub = (options.model or packaged_model()).resolve()
        sources = prepare(hub, Path(scratch), options.sides or ALL_SIDES)
        models: dict[str, Model] = {}
        for name, source in sources.items():
            models[name] = zoo.load(source.path, backend=source.backend, threads=options.threads)
        expected = {name: model.embed(texts) for name, model in models.items()}
        servers = start(sources, hub, options)
        try:
            for server in servers.values():
                server.wait(request(texts[:1]))
            worst = check_answers(servers, texts, expected)
            for case in options.cases:
                measurements[case] = measure(servers, models, case, texts, options)
            memory = {name: server.memory_mb() for name, server in servers.items()}
        finally:
            for server in servers.values():
                server.stop()
    print(f"{machine(options.threads)}. {versions('torch', 'onnxruntime', 'uvicorn')}.")
    print(f"Largest difference of float32 embeddings: {worst:.1e}.")
    for case, measurement in measurements.items():
        print(f"\n{case}:\n\n{case_table(measurement)}")
    rows = [[name, f"{size:.0f}"] for name, size in memory.items()]
    print("\n" + table(["server", "memory MB (PSS)"], rows))
    if options.record:
        record(measurements, memory)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, help="folder of .txt files")
    parser.add_argument("--model", type=Path, help="sentence encoder in the Hub's layout")
    parser.add_argument("--infinity", type=Path, help="infinity_emb of another environment")
    parser.add_argument("--quick", action="store_true", help="three loads, with fewer texts")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 32], help="per request")
    parser.add_argument("--sides", nargs="+", help="names of the servers, by default all")
    parser.add_argument("--workers", type=int, default=1, help="workers of zoo serve")
    parser.add_argument("--count", type=int, help="texts a round, at least")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="write benchmarks/results.json")
    options = parser.parse_args()
    options.cases = list(QUICK_CASES)
    if not options.quick:
        options.cases = [Case(*pair) for pair in itertools.product(options.clients, options.texts)]
    if options.count is None:
        options.count = QUICK_COUNT if options.quick else COUNT
    if options.record and options.sides is not None:
        parser.error("--record compares all servers: leave --sides out")
    return options


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
            if cosine < INT8_AGREE:
                sys.exit(f"{name}: the smallest cosine with a plain batch is {cosine:.4f}")
            continue
        difference = float(np.abs(vectors - reference).max())
        if not difference <= AGREE:
            sys.exit(f"{name}: the embeddings differ by {difference:.1e}, more than {AGREE:.0e}")
        worst = max(worst, difference)
    return worst


def measure(
    servers: Mapping[str, ServerProcess],
    models: "Mapping[str, Model]",
    case: Case,
    texts: Sequence[str],
    options: argparse.Namespace,
) -> Measurement:
    """Measure the servers alternately under a load, each of zoo after a plain batch."""
    count = max(options.count // case.size, case.clients)
    bodies = []
    for number in range(count):
        first = number * case.size
        bodies.append(request([texts[k % len(texts)] for k in range(first, first + case.size)]))
    timings = {name: LoadTiming() for name in servers}
    plain: dict[str, list[float]] = {name: [] for name in servers if name in models}
    names = list(servers)
    rounds = 1 if count * case.size >= LARGE_COUNT else options.rounds
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            if name in models:
                begin = time.process_time()
                models[name].embed(texts)
                plain[name].append((time.process_time() - begin) / len(texts))
            before = servers[name].cpu_seconds()
            answers = servers[name].send(bodies, case.clients)
            used = servers[name].cpu_seconds() - before
            timings[name].add(used, count * case.size, answers)
        figures = [f"{name} {1e3 * timings[name].cpu_seconds[-1]:.2f}" for name in names]
        head = f"{case}: round {turn + 1} of {rounds}, CPU ms/text"
        print(f"{head}: {', '.join(figures)}", file=sys.stderr, flush=True)
    return Measurement(timings, plain)


def case_table(measurement: Measurement) -> str:
    """Return the table of a load."""
    timings = measurement.timings
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
                f"{measurement.of_plain(name):.2f}" if name in measurement.plain else "",
                infinity,
                f"{statistics.median(timing.rates):.0f}",
                f"{1e3 * timing.percentile(50):.0f}",
                f"{1e3 * timing.percentile(99):.0f}",
            ]
        )
    return table(HEADER, rows)


def record(measurements: Mapping[Case, Measurement], memory: Mapping[str, float]) -> None:
    """Write a row for each load to the file of all results; rows of other loads stay."""
    results = json.loads(RESULTS.read_text("utf-8"))
    rows = results["rows"]
    for case, measurement in measurements.items():
        row = result_row(case, measurement, memory)
        places = [place for place, other in enumerate(rows) if is_same_load(row, other)]
        if places:
            rows[places[0]] = row
        else:
            rows.append(row)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")


def is_same_load(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two rows of the file of all results are of one load."""
    return all(row[key] == other[key] for key in ("benchmark", "script"))


def result_row(case: Case, measurement: Measurement, memory: Mapping[str, float]) -> dict[str, Any]:
    """Return the row of a load; the peer is infinity-emb if it was measured."""
    timings = measurement.timings
    milliseconds = {name: 1e3 * timing.cpu_per_text for name, timing in timings.items()}
    peer = INFINITY if INFINITY in timings else STARLETTE
    peer_time = milliseconds[peer]
    ours = []
    ratios = []
    for name in (TORCH, ONNX, INT8):
        backend = name.removeprefix("zoo, ")
        ours.append(f"{backend} {milliseconds[name]:.1f} ms of CPU, {memory[name]:,.0f} MB")
        ratios.append(f"{peer_time / milliseconds[name]:.1f}")
    row: dict[str, Any] = {
        "benchmark": f"embeddings over HTTP, {case} (MiniLM)",
        "zoo": "; ".join(ours),
        "peer": f"{peer}: {peer_time:.1f} ms, {memory[peer]:,.0f} MB",
        "ratio": f"{', '.join(ratios)} times as fast",
        "script": SCRIPT,
    }
    if case == USUAL:
        row["chart"] = [
            {
                "task": "embeddings over HTTP",
                "peer": peer,
                "zoo_value": round(milliseconds[TORCH], 2),
                "peer_value": round(peer_time, 2),
                "unit": "ms",
                "higher_is_better": False,
            }
        ]
    return row


if __name__ == "__main__":
    main()

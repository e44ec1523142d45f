"""Tokens per second of a stream, and the time to resume at 90 % of an epoch, next to other loaders.

    python -m benchmarks.streams [--documents 40000] [--peers FOLDER]

The data is JSON lines of synthetic text in eight shards, and a tokenizer that is trained on a part
of it. No side trains: each makes batches of 16 rows of 512 tokens, in a process of its own, one
after the other in each of ``--repetitions`` rounds.

* ``zoo``: the loader of ``zoo pretrain --streaming``, without worker processes.
* ``zoo, corpus``: the loader of a corpus, with the seconds that building it takes.
* ``datasets``: ``load_dataset(streaming=True)`` with ``shuffle`` and the same tokenizer, packed by
  a generator. It resumes by ``state_dict``, which does not restore the buffer of its shuffle.
* ``litdata``: chunks of tokens that ``litdata.optimize`` writes, whose seconds are counted as those
  of a corpus; ``StreamingDataset`` with ``TokensLoader``.

``datasets`` and ``litdata`` are left out where they are not installed; ``--peers`` names a further
folder of packages. Seconds are of the clock, with one thread. A resume begins in a new process,
after its imports, and ends when it has its first batch.
"""

import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks._common import machine, table, versions

LENGTH = 512
ROWS = 16
SHARDS = 8
BUFFER = 2048  # Documents, as eight lanes of 256 have.
POSITION = 0.9
SIDES = ("zoo", "zoo, corpus", "datasets", "litdata")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=40_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--peers", help="folder with datasets and litdata")
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        side, action = options.part
        print(json.dumps(PARTS[side](options.folder, action)))
        return
    if options.peers:
        sys.path.append(options.peers)
    print(f"{machine()}. {versions('tokenizers')}.\n")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_data(folder, options.documents)
        sides = []
        for side in SIDES:
            package = side.partition(",")[0]
            if importlib.util.find_spec(package) is None:
                print(f"{side} is left out: it is not installed.")
                continue
            sides.append(side)
        results: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(options.repetitions):
            for side in sides:
                read = run_part(side, "read", folder, options.peers)
                resumed = run_part(side, "resume", folder, options.peers)
                results[side].append({**read, **resumed})
    print(table(["", "prepare", "tokens/s", "resume at 90 %"], list(rows_of(results))))


def rows_of(results: dict[str, list[dict[str, float]]]) -> Iterator[list[str]]:
    for side, measurements in results.items():
        medians = {}
        for name in ("rate", "resume"):
            medians[name] = statistics.median(values[name] for values in measurements)
        # Only the first round prepares the data.
        seconds = max(values["prepare"] for values in measurements)
        prepare = f"{seconds:.1f} s" if seconds else ""
        yield [side, prepare, f"{medians['rate']:,.0f}", f"{medians['resume']:.2f} s"]


def run_part(side: str, action: str, folder: Path, peers: str | None) -> dict[str, float]:
    """Run a side in a process of its own."""
    paths = [str(Path(__file__).parents[1]), peers or ""]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "ZOO_HOME": str(folder / "home"),
        "HF_HOME": str(folder / "hub"),
        "OMP_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, "-m", "benchmarks.streams", "--part", side, action]
    done = subprocess.run(
        [*command, "--folder", str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    values: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return values


def write_data(folder: Path, documents: int) -> None:
    """Write shards of JSON lines, and a tokenizer."""
    from zoo.data.cache import cached_corpus
    from zoo.data.tokenizer import TokenizerToTrain
    from zoo.plugins import get_family

    os.environ["ZOO_HOME"] = str(folder / "home")
    draw = random.Random(0)
    letters = "etaoinshrdlu"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(5000)]
    (folder / "data").mkdir()
    for shard in range(SHARDS):
        with (folder / "data" / f"{shard}.jsonl").open("w") as file:
            for _ in range(documents // SHARDS):
                text = " ".join(draw.choices(words, k=draw.randint(50, 400)))
                file.write(json.dumps({"text": text}) + "\n")
    with (folder / "data" / "0.jsonl").open() as file:
        sample = list(islice(file, 500))
    (folder / "sample.jsonl").write_text("".join(sample))
    trained = TokenizerToTrain.for_family(get_family("gpt"), vocab_size=4000)
    corpus = cached_corpus([folder / "sample.jsonl"], trained, eval_fraction=0)
    (folder / "tokenizer").symlink_to(corpus.path)


def zoo_settings(folder: Path, **data: Any) -> dict[str, Any]:
    return {
        "family": "gpt",
        "seq_len": LENGTH,
        "seq_len_warmup": None,
        "global_batch_tokens": ROWS * LENGTH,
        "max_steps": 1_000_000,
        "config": {"max_positions": LENGTH},
        "data": {
            "paths": [str(folder / "data")],
            "eval_paths": [str(folder / "sample.jsonl")],
            "tokenizer": str(folder / "tokenizer"),
            **data,
        },
    }


def read_with_zoo(folder: Path, action: str) -> dict[str, float]:
    return _read_with_zoo(folder, action, {"streaming": True})


def read_corpus_with_zoo(folder: Path, action: str) -> dict[str, float]:
    return _read_with_zoo(folder, action, {})


def _read_with_zoo(folder: Path, action: str, data: dict[str, Any]) -> dict[str, float]:
    import torch

    from zoo.training.config.schema import pretrain_config
    from zoo.training.distributed.context import DistContext
    from zoo.training.setup import PretrainSetup, pretrain_setup, train_dataloader

    config = pretrain_config(zoo_settings(folder, **data), {})
    dist = DistContext(0, 1, torch.device("cpu"))
    saved = folder / f"zoo-{len(data)}.json"
    start = time.perf_counter()
    setup: PretrainSetup = pretrain_setup(config)
    prepare = 0.0 if data else time.perf_counter() - start
    if data:
        setup = setup.with_workers(0)
    loader = train_dataloader(setup, dist)
    if action == "resume":
        step, state = json.loads(saved.read_text())
        loader.load_state_dict(step, {name: torch.tensor(value) for name, value in state.items()})
        loader.make_batches(step)
        return {"resume": time.perf_counter() - start}
    steps = epoch_steps(folder)
    start = time.perf_counter()
    tokens = 0
    for step in range(steps):
        tokens += sum(batch.tokens for batch in loader.make_batches(step))
    seconds = time.perf_counter() - start
    state = {name: value.tolist() for name, value in loader.state_dict(steps, dist).items()}
    saved.write_text(json.dumps([steps, state]))
    return {"prepare": prepare, "rate": tokens / seconds}


def epoch_steps(folder: Path) -> int:
    """Return the number of steps of 90 % of an epoch, for about three bytes a token."""
    total = sum(path.stat().st_size for path in (folder / "data").iterdir())
    return int(POSITION * total / 3 / (ROWS * LENGTH))


def tokenizer_of(folder: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))


def packed_rows(texts: Iterator[str], tokenizer: Any) -> Iterator[list[int]]:
    """Yield rows of tokens of concatenated texts."""
    row: list[int] = []
    while batch := list(islice(texts, 64)):
        for encoding in tokenizer.encode_batch(batch, add_special_tokens=False):
            row.extend([*encoding.ids, 0])
            while len(row) >= LENGTH:
                yield row[:LENGTH]
                row = row[LENGTH:]


def read_with_datasets(folder: Path, action: str) -> dict[str, float]:
    import datasets
    import torch

    tokenizer = tokenizer_of(folder)
    files = sorted(map(str, (folder / "data").iterdir()))
    saved = folder / "datasets.json"
    start = time.perf_counter()
    data = datasets.load_dataset("json", data_files=files, split="train", streaming=True)
    data = data.shuffle(seed=0, buffer_size=BUFFER)
    if action == "resume":
        data.load_state_dict(json.loads(saved.read_text()))
    rows = packed_rows((example["text"] for example in data), tokenizer)
    if action == "resume":
        torch.tensor(list(islice(rows, ROWS)))
        return {"resume": time.perf_counter() - start}
    steps = epoch_steps(folder)
    for _ in range(steps):
        torch.tensor(list(islice(rows, ROWS)))
    seconds = time.perf_counter() - start
    saved.write_text(json.dumps(data.state_dict()))
    return {"prepare": 0.0, "rate": steps * ROWS * LENGTH / seconds}


def tokens_of_file(path: str) -> Iterator[Any]:
    """Yield the tokens of each document of a file, for ``litdata.optimize``."""
    import torch

    tokenizer = tokenizer_of(Path(path).parents[1])
    with Path(path).open() as file:
        texts = (json.loads(line)["text"] for line in file)
        while batch := list(islice(texts, 64)):
            for encoding in tokenizer.encode_batch(batch, add_special_tokens=False):
                yield torch.tensor([*encoding.ids, 0])


def read_with_litdata(folder: Path, action: str) -> dict[str, float]:
    import litdata
    import torch
    from litdata.streaming.item_loader import TokensLoader

    files = sorted(map(str, (folder / "data").iterdir()))
    output = folder / "chunks"
    saved = folder / "litdata.json"
    start = time.perf_counter()
    if not output.exists():
        litdata.optimize(
            fn=tokens_of_file,
            inputs=files,
            output_dir=str(output),
            num_workers=1,
            chunk_bytes="16MB",
            item_loader=TokensLoader(block_size=LENGTH),
        )
        (folder / "litdata-seconds").write_text(str(time.perf_counter() - start))
    prepare = float((folder / "litdata-seconds").read_text())
    start = time.perf_counter()
    data = litdata.StreamingDataset(
        str(output), item_loader=TokensLoader(block_size=LENGTH), shuffle=True, seed=0
    )
    loader = litdata.StreamingDataLoader(data, batch_size=ROWS, num_workers=0)
    if action == "resume":
        loader.load_state_dict(torch.load(saved, weights_only=False))
        next(iter(loader))
        return {"resume": time.perf_counter() - start}
    count = 0
    last = int(POSITION * len(data) / ROWS)
    for count, _ in enumerate(loader, 1):
        if count == last:
            torch.save(loader.state_dict(), saved)
            break
    seconds = time.perf_counter() - start
    return {"prepare": prepare, "rate": count * ROWS * LENGTH / seconds}


PARTS = {
    "zoo": read_with_zoo,
    "zoo, corpus": read_corpus_with_zoo,
    "datasets": read_with_datasets,
    "litdata": read_with_litdata,
}

if __name__ == "__main__":
    main()

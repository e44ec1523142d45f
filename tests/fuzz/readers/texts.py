"""The registry, the lock file, recipes, and the texts of corpora."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.case import run_zoo
from tests.fuzz.octets import BYTES, Mutate, change_line, gzipped
from tests.fuzz.reader import Reader, by_suffix
from tests.fuzz.readers.examples import zoo
from tests.fuzz.readers.models import EMBED, MODEL, make_model, same_vector
from tests.fuzz.trees import json_lines_mutation

ROWS = """\
my-model:
  family: bert
  repo: someone/my-model
  head: masked-lm
  parameters: 12345
  licence: mit
other:
  family: gpt
  page: https://example.org/other
  size: small
  config: {vocab_size: 1000, dropout: 0.1}
  files: [config.json, model.safetensors]
  revision: v1.0
"""


class Registry(Reader):
    name = "registry"
    also_named = ("other",)  # a model that a mutated registry may lack
    targets = ("home/registry.yaml",)

    def make(self, folder: Path) -> None:
        (folder / "scene" / "home").mkdir(parents=True)
        (folder / "scene" / "home" / "registry.yaml").write_text(ROWS)

    def mutations(self, path: Path) -> Sequence[Mutate]:
        return (*by_suffix(path), *[change_line] * 10)

    def commands(self, random: Random) -> list[list[str]]:
        return [["models", "--json"], random.choice((["info", "other", "--json"], ["models"]))]

    def check(self, folder: Path) -> str:
        import yaml

        text = (folder / "home" / "registry.yaml").read_bytes()
        expected = yaml.load(text, yaml.CSafeLoader) or {}  # the Python loader refuses some tabs
        run_zoo(["models", "--json"], folder.parent)
        printed = json.loads((folder.parent / "out").read_text())
        rows = printed.get("models", printed.get("registry", printed))
        known = rows if isinstance(rows, dict) else {row["name"]: row for row in rows}
        for name, row in expected.items():
            if str(name) not in known:
                return f"{name} is not listed"
            if row["family"] != known[str(name)]["family"]:
                return f"{name}: the family differs"
        return ""


class LockFile(Reader):
    """Reader of ``zoo.lock``, with a stored model converted from a locked commit."""

    name = "lock"
    targets = ("zoo.lock",)

    def make(self, folder: Path) -> None:
        make_model(folder / "made")
        model = folder / "scene" / "home" / "models" / MODEL
        model.parent.mkdir(parents=True)
        (folder / "made" / MODEL).rename(model)
        manifest = json.loads((model / "zoo.json").read_bytes())
        source = manifest["source"] | {"repo": "someone/model", "revision": "c" * 40}
        (model / "zoo.json").write_text(json.dumps(manifest | {"source": source}))
        pinned = {"revision": "c" * 40, "files": source["files"]}
        lock = {"zoo": 1, "models": {"someone/model@main": pinned}}
        (folder / "scene" / "zoo.lock").write_text(json.dumps(lock, indent=1))
        (folder / "sound.json").write_text(zoo(folder / "scene", EMBED))

    def commands(self, random: Random) -> list[list[str]]:
        return [EMBED]

    def check(self, folder: Path) -> str:
        sound = (folder.parent / "sound.json").read_text()
        return self._pins(folder) or same_vector((folder.parent / "out").read_text(), sound)

    def _pins(self, folder: Path) -> str:
        """Check that commits and digests of the lock file match the model."""
        path = folder / "home" / "models" / MODEL / "zoo.json"
        made_of = json.loads(path.read_bytes())["source"]
        lock = folder / "zoo.lock"
        if not lock.exists():
            return ""
        for key, pinned in json.loads(lock.read_bytes())["models"].items():
            if key.partition("@")[0] == "someone/model":
                files = {n: d for n, d in pinned["files"].items() if n in made_of["files"]}
                same = all(made_of["files"][name] == digest for name, digest in files.items())
                if pinned["revision"] != made_of["revision"] or not same:
                    return "another commit or file is locked"
        return ""


RECIPE: Mapping[str, Any] = {
    "family": "gpt",
    "size": "tiny",
    "objective": "causal-lm",
    "max_steps": 1,
    "global_batch_tokens": 64,
    "micro_batch_tokens": 64,
    "seq_len": 32,
    "logging_steps": 1,
    "eval_steps": 1,
    "eval_sequences": 1,
    "save_steps": 1,
    "config": {"num_layers": 1, "hidden_size": 32, "num_heads": 2, "dropout": 0.1},
    "optimizer": {"learning_rate": 0.001, "betas": [0.9, 0.99], "weight_decay": 0.01},
    "lr_scheduler": {"warmup_steps": 2},
    "seed": 1,
    "data": {"paths": ["texts/one.txt"], "tokenizer": "train"},
}
SMALL = [
    "--max-steps",
    "1",
    "--global-batch-tokens",
    "64",
    "--set",
    "seq_len=32",
    "--set",
    "micro_batch_tokens=64",
]
SENTENCES = [f"The {w} sat on the mat. It was a {w}, said Bell." for w in ("cat", "dog", "bat")]


def write_texts(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "one.txt").write_text("\n\n".join(SENTENCES * 4) + "\n", "utf-8")


class Recipe(Reader):
    """Reader of the settings of a run of one step."""

    name = "recipe"
    targets = ("settings.yaml",)

    def make(self, folder: Path) -> None:
        write_texts(folder / "scene" / "texts")
        corpus = ["corpus", "build", "texts", "-o", "built-corpus", "--tokenizer", "train"]
        options = ["--family", "gpt", "--vocab-size", "300", "--workers", "1"]
        zoo(folder / "scene", [*corpus, *options, "--eval-fraction", "0.3"])
        recipe = {**RECIPE, "data": {"paths": ["built-corpus"]}}
        (folder / "scene" / "settings.yaml").write_text(json.dumps(recipe, indent=1))

    def commands(self, random: Random) -> list[list[str]]:
        train = ["pretrain", "settings.yaml", "-o", "the-run", "--device", "cpu", "--offline"]
        return [[*train, *SMALL]]

    def check(self, folder: Path) -> str:
        """Check that the recorded settings of the run match the file."""
        import yaml

        stated = yaml.load((folder / "settings.yaml").read_bytes(), yaml.SafeLoader)
        noted = yaml.load((folder / "the-run" / "config.yaml").read_bytes(), yaml.SafeLoader)
        overridden = {
            "max_steps",
            "global_batch_tokens",
            "seq_len",
            "micro_batch_tokens",
            "data",
            "config",
        }
        for key in stated.keys() - overridden:
            if isinstance(stated[key], int | str) and stated[key] != noted.get(key):
                return f"{key} is {noted.get(key)}, and the file states {stated[key]}"
        return ""


class Inputs(Reader):
    """Reader of texts in all formats of corpora, one file per case."""

    name = "inputs"
    weight = 2
    targets = ("texts/one.*",)
    computes = True  # the results of a model for each text
    MANY = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")

    def make(self, folder: Path) -> None:
        make_model(folder / "made")
        scene = folder / "scene"
        (scene / "texts").mkdir(parents=True)
        (folder / "made" / MODEL).rename(scene / MODEL)
        rows = "".join(json.dumps({"text": text}) + "\n" for text in SENTENCES).encode()
        plain = "\n\n".join(SENTENCES).encode()
        self._write(scene / "texts", plain, rows)

    def _write(self, folder: Path, plain: bytes, rows: bytes) -> None:
        import pyarrow
        import pyarrow.parquet
        import zstandard

        (folder / "one.txt").write_bytes(plain)
        (folder / "one.txt.gz").write_bytes(gzip.compress(plain, mtime=0))
        (folder / "one.jsonl").write_bytes(rows)
        (folder / "one.jsonl.gz").write_bytes(gzip.compress(rows, mtime=0))
        (folder / "one.jsonl.zst").write_bytes(zstandard.compress(rows))
        table = pyarrow.table({"text": SENTENCES, "number": [1, 2, 3]})
        pyarrow.parquet.write_table(table, folder / "one.parquet")

    def mutations(self, path: Path) -> Sequence[Mutate]:
        inner = json_lines_mutation if ".jsonl" in path.name else change_line
        if path.suffix == ".gz":
            return (*BYTES, *[gzipped(inner)] * 10, *(gzipped(change) for change in BYTES))
        return by_suffix(path)

    def mutate(self, folder: Path, random: Random) -> str:
        """Mutate one file, and remove the others."""
        count = random.choice(self.MANY)
        for path in (folder / "texts").iterdir():
            if path.name != f"one{count}":
                path.unlink()
        return super().mutate(folder, random)

    def commands(self, random: Random) -> list[list[str]]:
        return [[*self._build("texts", "built-corpus")]]

    def _build(self, texts: str, target: str) -> list[str]:
        build = ["corpus", "build", texts, "-o", target, "--tokenizer", MODEL]
        return [*build, "--workers", "1", "--eval-fraction", "0"]

    def check(self, folder: Path) -> str:
        """Check that the texts, read by other libraries, have the same token ids."""
        (path,) = (folder / "texts").iterdir()
        (folder / "expected").mkdir()
        rows = "".join(json.dumps({"text": text}) + "\n" for text in _texts(path))
        (folder / "expected" / "all.jsonl").write_text(rows)
        code = run_zoo(self._build("expected", "expected-corpus"), folder.parent)
        if code:
            return "the same texts as JSON lines are refused: " + _error(folder)
        first, second = (_tokens(folder / name) for name in ("built-corpus", "expected-corpus"))
        return "" if first == second else "other tokens than of the same texts as JSON lines"


def _texts(path: Path) -> list[str]:
    """Return the documents of a file, read by the standard library and pyarrow."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        texts = pyarrow.parquet.read_table(path, columns=["text"]).column("text").to_pylist()
        return [text for text in texts if text.strip()]
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif path.suffix == ".zst":
        import zstandard

        frames = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
        data = frames.read()
    lines = data.decode("utf-8").split("\n")
    if ".jsonl" in path.name:
        return [json.loads(line, parse_int=len)["text"] for line in lines if line.strip()]
    documents = []
    held = []
    for line in [line.removesuffix("\r") for line in (*lines, "")]:
        if line.strip():
            held.append(line)
        elif held:
            documents.append("\n".join(held))
            held = []
    return documents


def _tokens(corpus: Path) -> dict[str, bytes]:
    return {str(p.relative_to(corpus)): p.read_bytes() for p in sorted(corpus.rglob("*.bin"))}


def _error(folder: Path) -> str:
    return (folder.parent / "err").read_text()[-500:]


READERS = (Registry(), LockFile(), Recipe(), Inputs())

"""Tables of labelled rows, in every format and for every kind of task, and folders of GLUE."""

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tests.fuzz.case import run_zoo
from tests.fuzz.octets import BYTES, Mutate, change_line, gzipped
from tests.fuzz.reader import Reader, by_suffix
from tests.fuzz.readers.examples import zoo
from tests.fuzz.trees import json_lines_mutation

TEXTS = ("a cat sat", "the dog ran off", "one bat flew", "a cow ate it")
RUN = "trained"
MODEL = "trained/model"
SMALL = ("num_layers=1", "hidden_size=32", "num_heads=4", "intermediate_size=32")
Rows = list[dict[str, Any]]


def finetune(
    folder: Path, family: str, task: str, table: str, run: str = RUN, *more: str, limit: int = 64
) -> None:
    """Fine-tune a tiny model for a step, so that there is one of each task."""
    words = ["finetune", family, "--task", task, "--train", table, "-o", run]
    words += ["--max-steps", "1", "--device", "cpu", "--offline", "--set", "vocab_size=300"]
    config = [*SMALL, f"max_positions={limit}"] if family == "bert" else ["size=tiny"]
    for setting in config:
        words += ["--set", setting if family != "bert" else f"config.{setting}"]
    zoo(folder, [*words, *more])


def json_lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def rows_of(path: Path) -> Rows:
    """Return the rows of a table, read by the standard library and pyarrow."""
    data = path.read_bytes()
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return list(pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist())
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    text = data.decode("utf-8-sig")
    if ".jsonl" in path.name:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    if ".csv" in path.name:
        records = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    else:
        lines = text.replace("\r\n", "\n").split("\n")
        records = [line.removesuffix("\r").split("\t") for line in lines]
    records = [cells for cells in records if any(cells)]
    return [dict(zip(records[0], cells, strict=True)) for cells in records[1:]]


class Table(Reader):
    """Texts with labels; a case has one of all formats."""

    name = "table"
    weight = 3
    also_named = ("table.",)
    targets: Sequence[str] = ("table.*",)
    computes = True  # the results of a model for each row
    task = "text-classification"
    family = "bert"
    kinds: Sequence[str] = (
        ".jsonl",
        ".tsv",
        ".csv",
        ".parquet",
        ".jsonl.gz",
        ".tsv.gz",
    )

    def rows(self) -> Rows:
        return [{"text": text, "label": ("no", "yes")[k % 2]} for k, text in enumerate(TEXTS * 2)]

    def make(self, folder: Path) -> None:
        scene = folder / "scene"
        scene.mkdir(parents=True)
        rows = self.rows()
        (scene / "table.jsonl").write_bytes(json_lines(rows))
        finetune(scene, self.family, self.task, "table.jsonl")
        for path in (scene / RUN).iterdir():
            if path.name != "model" and path.is_file():
                path.unlink()
        for suffix in self.kinds:
            self._write(scene / f"table{suffix}", rows)

    def _write(self, path: Path, rows: Rows) -> None:
        if path.suffix == ".parquet":
            import pyarrow
            import pyarrow.parquet

            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
            return
        content = json_lines(rows)
        if ".jsonl" not in path.name:
            delimiter = "," if ".csv" in path.name else "\t"
            records = [list(rows[0]), *(list(row.values()) for row in rows)]
            content = "".join(delimiter.join(map(str, cells)) + "\n" for cells in records).encode()
        path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)

    def mutations(self, path: Path) -> Sequence[Mutate]:
        inner = json_lines_mutation if ".jsonl" in path.name else change_line
        if path.suffix == ".gz":
            return (*BYTES, *[gzipped(inner)] * 10, *(gzipped(change) for change in BYTES))
        if path.suffix in (".tsv", ".csv"):
            return (*BYTES, *[change_line] * len(BYTES))
        return by_suffix(path)

    def choose(self, folder: Path, kind: str) -> None:
        for path in folder.glob("table.*"):
            if path.name != f"table{kind}":
                path.unlink()
        (folder.parent / "table").write_text(f"table{kind}")

    def words(self, table: str) -> list[str]:
        return ["eval", MODEL, "--task", self.task, "--eval", table, "--json", "--no-record"]

    def commands(self, random: Random) -> list[list[str]]:
        return [self.words("table.*")]

    def check(self, folder: Path) -> str:
        """Check that the rows as other libraries read them, as JSON lines, have equal metrics."""
        name = (folder.parent / "table").read_text()
        return self.compare(folder, json_lines(rows_of(folder / name)), ".jsonl")

    def compare(self, folder: Path, content: bytes, suffix: str) -> str:
        printed = json.loads((folder.parent / "out").read_text())["metrics"]
        (folder / f"expected{suffix}").write_bytes(content)
        if run_zoo(self.words(f"expected{suffix}"), folder.parent):
            return "the same rows, written anew, are refused: " + _error(folder)
        expected = json.loads((folder.parent / "out").read_text())["metrics"]
        return "" if printed == expected else f"{printed} is not {expected} of the same rows"


class Choices(Table):
    name = "choices"
    weight = 1
    task = "multiple-choice"
    kinds = (".jsonl", ".parquet")

    def rows(self) -> Rows:
        return [
            {
                "context": text,
                "question": "a _ it",
                "choices": ["cat", "dog", "bat"],
                "label": k % 3,
            }
            for k, text in enumerate(TEXTS)
        ]


class TextToText(Table):
    name = "seq2seq"
    weight = 1
    family = "t5"
    task = "seq2seq"
    kinds = (".jsonl", ".tsv", ".csv", ".parquet")

    def rows(self) -> Rows:
        return [{"text": text, "label": text[:5].strip()} for text in TEXTS]

    def words(self, table: str) -> list[str]:
        return [*super().words(table), "--max-new-tokens", "2", "--num-beams", "1"]


class Squad(Table):
    """SQuAD's JSON: articles, paragraphs, questions and answers."""

    name = "squad"
    weight = 1
    task = "question-answering"
    kinds = (".json",)

    def rows(self) -> Rows:
        return [
            {
                "question": "who",
                "context": text,
                "answers": [{"text": text.split()[1], "answer_start": text.find(" ") + 1}],
            }
            for text in TEXTS
        ]

    def _write(self, path: Path, rows: Rows) -> None:
        paragraphs = [
            {
                "context": row["context"],
                "qas": [
                    {"id": str(number), "question": row["question"], "answers": row["answers"]},
                    {
                        "id": f"{number}n",
                        "question": "why",
                        "answers": [],
                        "is_impossible": True,
                    },
                ],
            }
            for number, row in enumerate(rows)
        ]
        data = [{"title": "one", "paragraphs": paragraphs[:2]}, {"paragraphs": paragraphs[2:]}]
        path.write_text(json.dumps({"version": "v2.0", "data": data}, indent=1))

    def check(self, folder: Path) -> str:
        """Check the metrics of the same questions in one article of known fields."""
        value = json.loads((folder / "table.json").read_bytes())
        known = ("id", "question", "answers", "is_impossible")
        paragraphs = [
            {
                "context": paragraph["context"],
                "qas": [{k: row[k] for k in known if k in row} for row in paragraph["qas"]],
            }
            for article in value["data"]
            for paragraph in article["paragraphs"]
        ]
        content = json.dumps({"data": [{"paragraphs": paragraphs}]}).encode()
        return self.compare(folder, content, ".json")


class Glue(Reader):
    """A folder of GLUE with files of two tasks, one of them without a header."""

    name = "glue"
    also_named = ("GLUE",)
    targets = ("GLUE/CoLA/dev.tsv", "GLUE/RTE/dev.tsv")
    computes = True
    COMMAND: ClassVar[Sequence[str]] = (
        "eval",
        "models",
        "--suite",
        "glue",
        "--eval",
        "GLUE",
        "--json",
        "--no-record",
    )

    def make(self, folder: Path) -> None:
        scene = folder / "scene"
        for name in ("CoLA", "RTE"):
            (scene / "GLUE" / name).mkdir(parents=True)
        cola = "".join(f"x\t{k % 2}\t\t{text}\n" for k, text in enumerate(TEXTS))
        labels = ("entailment", "not_entailment")
        rte = "index\tsentence1\tsentence2\tlabel\n" + "".join(
            f"{k}\t{text}\t{TEXTS[k - 1]}\t{labels[k % 2]}\n" for k, text in enumerate(TEXTS)
        )
        tables = {"cola": ("CoLA", cola), "rte": ("RTE", rte)}
        for task, (name, content) in tables.items():
            for split in ("train", "dev"):
                (scene / "GLUE" / name / f"{split}.tsv").write_text(content)
            path = f"GLUE/{name}/train.tsv"
            columns = ["--text", "4", "--label", "2"]
            if task == "rte":
                columns = ["--text", "sentence1", "--pair", "sentence2", "--label", "label"]
            finetune(scene, "bert", "text-classification", path, f"models/{task}", *columns)

    def mutations(self, path: Path) -> Sequence[Mutate]:
        return (*BYTES, *[change_line] * len(BYTES))

    def commands(self, random: Random) -> list[list[str]]:
        return [[*self.COMMAND]]

    def check(self, folder: Path) -> str:
        """Check the metrics of the same rows in clean files."""
        printed = json.loads((folder.parent / "out").read_text())["tasks"]
        for target in self.targets:
            text = (folder / target).read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
            rows = [line.removesuffix("\r").split("\t") for line in text.split("\n")]
            clean = ["\t".join(cells) for cells in rows if any(cells)]
            (folder / target).write_text("\n".join(clean) + "\n", "utf-8")
        if run_zoo(self.COMMAND, folder.parent):
            return "the same rows, written anew, are refused: " + _error(folder)
        expected = json.loads((folder.parent / "out").read_text())["tasks"]
        return "" if printed == expected else f"{printed} is not {expected} of the same rows"


def _error(folder: Path) -> str:
    return (folder.parent / "err").read_text()[-500:]


READERS = (Table(), Choices(), TextToText(), Squad(), Glue())

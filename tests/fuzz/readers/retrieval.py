"""Retrieval data: folders of BEIR, and relevance in TREC's format next to tables of texts."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.fuzz.case import run_zoo
from tests.fuzz.octets import BYTES, Mutate, change_line
from tests.fuzz.reader import Reader, by_suffix
from tests.fuzz.readers.models import MODEL, make_model
from tests.fuzz.readers.tables import json_lines

WORDS = ("a bad cab", "abba fed a hig", "j i h", "a b c d e", "cab hedge", "fig", "babe age")
DATA = "data"
HEADER = "query-id\tcorpus-id\tscore\n"


class Beir(Reader):
    """A folder with texts, queries and relevance."""

    name = "beir"
    also_named = (DATA,)
    targets: Sequence[str] = (
        f"{DATA}/corpus.jsonl",
        f"{DATA}/queries.jsonl",
        *[f"{DATA}/qrels/test.tsv"] * 2,
    )
    judged = "qrels/test.tsv"
    expected = "expected"

    def make(self, folder: Path) -> None:
        scene = folder / "scene"
        make_model(scene)
        for path in (scene / "hub").iterdir():
            path.unlink()
        (scene / "hub").rmdir()
        (scene / DATA / "qrels").mkdir(parents=True)
        corpus = [{"_id": f"d{k}", "title": "a", "text": text} for k, text in enumerate(WORDS)]
        queries = [{"_id": f"q{k}", "text": text[:4]} for k, text in enumerate(WORDS[:3])]
        judged = [(f"q{k}", f"d{k + other}", 1 + other) for k in range(3) for other in (0, 1)]
        self.write(scene / DATA, corpus, queries, judged)

    def write(
        self,
        folder: Path,
        corpus: list[dict[str, str]],
        queries: list[dict[str, str]],
        judged: Sequence[tuple[str, str, float]],
    ) -> None:
        (folder / "corpus.jsonl").write_bytes(json_lines(corpus))
        (folder / "queries.jsonl").write_bytes(json_lines(queries))
        lines = "".join(f"{query}\t{text}\t{grade}\n" for query, text, grade in judged)
        (folder / "qrels" / "test.tsv").write_text(HEADER + lines, "utf-8")

    def mutations(self, path: Path) -> Sequence[Mutate]:
        if path.suffix in (".tsv", ".trec"):
            return (*BYTES, *[change_line] * (2 * len(BYTES)))
        return by_suffix(path)

    def words(self, folder: str) -> list[str]:
        options = ["--task", "retrieval", "--json", "--no-record", "--backend", "cpu"]
        return ["eval", MODEL, *options, "--eval", folder]

    def commands(self, random: Random) -> list[list[str]]:
        return [self.words(DATA)]

    def check(self, folder: Path) -> str:
        """Check that the same rows, read by the standard library, have equal metrics."""
        printed = json.loads((folder.parent / "out").read_text())["metrics"]
        (folder / self.expected / "qrels").mkdir(parents=True)
        corpus, queries = (
            [
                {key: str(row[key]) for key in row if key.endswith("id") or row[key]}
                for row in rows_of(folder / DATA / name)
            ]
            for name in ("corpus.jsonl", "queries.jsonl")
        )
        judged = judgements(folder / DATA / self.judged)
        self.write(folder / self.expected, corpus, queries, judged)
        if run_zoo(self.words(self.expected), folder.parent):
            return "the same rows, written anew, are refused: " + error_of(folder)
        expected = json.loads((folder.parent / "out").read_text())["metrics"]
        return "" if printed == expected else f"{printed} is not {expected} of the same rows"


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file that are not empty."""
    text = path.read_bytes().decode("utf-8-sig")
    return [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]


def rows_of(path: Path) -> list[dict[str, object]]:
    """Return the objects of a file of JSON lines."""
    return [json.loads(line) for line in lines_of(path)]


def judgements(path: Path) -> list[tuple[str, str, float]]:
    """Return query, text and grade of each line but the header."""
    judged = []
    for line in lines_of(path):
        if line.strip() != HEADER.strip():
            has_tabs = path.suffix == ".tsv" and line.count("\t") == 2
            cells = line.split("\t") if has_tabs else line.split()
            judged.append((cells[0], cells[-2], float(cells[-1])))
    return judged


def error_of(folder: Path) -> str:
    return (folder.parent / "err").read_text()[-500:]


class Trec(Beir):
    """Relevance in four columns without a header, and texts in JSON lines."""

    name = "trec"
    targets = (f"{DATA}/qrels.trec",)
    judged = "qrels.trec"

    def write(
        self,
        folder: Path,
        corpus: list[dict[str, str]],
        queries: list[dict[str, str]],
        judged: Sequence[tuple[str, str, float]],
    ) -> None:
        super().write(folder, corpus, queries, judged)
        lines = "".join(f"{query} 0 {text} {grade}\n" for query, text, grade in judged)
        (folder / "qrels.trec").write_text(lines, "utf-8")

    def words(self, folder: str) -> list[str]:
        files = ["--queries", f"{folder}/queries.jsonl", "--qrels", f"{folder}/qrels.trec"]
        return [*super().words(f"{folder}/corpus.jsonl"), *files]


READERS = (Beir(), Trec())

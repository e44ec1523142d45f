"""Cleaning as a command: what is left, whatever runs it and whatever happens meanwhile."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.cleaning.making import PROSE, read_rows, read_texts, write_texts
from tests.in_process import exit_code
from zoo.cleaning import parts
from zoo.cleaning.executors import LocalExecutor

SENTENCES = [sentence + "." for sentence in PROSE.removesuffix(".").split(". ")]


def clean(*words: object) -> int:
    return exit_code(["corpus", "clean", *map(str, words), "--quiet"])


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a directory by their names."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def synthetic_texts(seed: int, count: int) -> list[str]:
    """Return texts of random sentences, some of which occur again, with a line to drop."""
    generator = random.Random(seed)
    vocabulary = ["".join(letters) for letters in product("abcdefg", repeat=3)]
    texts = []
    for number in range(count):
        words = [generator.choice(vocabulary) for _ in range(60)]
        sentences = [" ".join(words[k : k + 10]).capitalize() + "." for k in range(0, 60, 10)]
        if number % 5 == 0:
            sentences[1:1] = SENTENCES[:3]
        texts.append(" ".join(sentences) + "\nHome | About")
    return [*texts, texts[0]]


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crawl")
    for number in range(2):
        write_texts(folder / f"{number}.jsonl", synthetic_texts(number, 10))
    return folder


def test_counts_and_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_texts(
        tmp_path / "a.jsonl",
        [PROSE, f"Home | About\n{PROSE}", "Too short to be a page of prose.", PROSE + " {"],
    )
    assert clean(source, "-o", tmp_path / "out", "--rule", "c4", "--json") == 0
    value = json.loads(capsys.readouterr().out)
    (report,) = value["rules"]
    assert report["texts"] == 4
    assert report["dropped"] == {"too-few-sentences": 2}
    assert report["lines"] == {"no-terminal-punc": 2}
    name = str(source)
    (example, other) = report["examples"]["too-few-sentences"]
    assert example["text"] == "Too short to be a page of prose." and example["id"] == f"{name}:3"
    assert other["id"] == f"{name}:4"
    assert report["line_examples"] == [{"id": f"{name}:2", "text": "Home | About"}]
    assert value["stages"] == [{"name": "rules", "texts": 2, "characters": 2 * len(PROSE)}]
    rows = [{"text": PROSE, "id": f"{name}:{number}"} for number in (1, 2)]
    assert read_rows(tmp_path / "out") == rows


@pytest.mark.long
def test_spans_that_occurred_before_are_removed(tmp_path: Path) -> None:
    other = "Another text begins here. It has its own words. Nobody has read it before. " * 1
    texts = [PROSE, f"{other}{' '.join(SENTENCES[1:4])}", f"{other[:25]}{SENTENCES[0]} It ends."]
    source = write_texts(tmp_path / "a.jsonl", texts)
    assert clean(source, "-o", tmp_path / "out", "--deduplicate", "spans") == 0
    # The second text loses the span of the first; the third has no span of three sentences.
    assert read_texts(tmp_path / "out") == [PROSE, other.strip(), texts[2]]


@pytest.mark.long
def test_lines_that_occurred_before_are_removed(tmp_path: Path) -> None:
    lines = ["One line of its own.", "Another line of its own.", "A third line is here."]
    texts = ["\n".join([*lines, "The footer."]), "\n".join(["Only this.", *lines])]
    source = write_texts(tmp_path / "a.jsonl", texts)
    assert clean(source, "-o", tmp_path / "out", "--deduplicate", "lines") == 0
    # The second text is left without three sentences.
    assert read_texts(tmp_path / "out") == texts[:1]


def test_equal_and_nearly_equal_texts_are_dropped(tmp_path: Path) -> None:
    long_text = " ".join(synthetic_texts(1, 3)).replace("\nHome | About", "")
    nearly = long_text.replace(".", " once.", 1)
    texts = [long_text, nearly, PROSE, long_text]
    source = write_texts(tmp_path / "a.jsonl", texts)
    assert clean(source, "-o", tmp_path / "out", "--deduplicate", "documents") == 0
    assert len(read_texts(tmp_path / "out")) == 2
    assert PROSE in read_texts(tmp_path / "out")


@pytest.mark.long
def test_runs_that_occurred_before_are_removed(tmp_path: Path) -> None:
    generator = random.Random(3)
    words = [f"v{generator.randrange(5000)}" for _ in range(400)]
    first = " ".join(words[:150])
    second = " ".join([*words[200:220], *words[40:100], *words[220:240]])  # 60 words of the first
    third = " ".join([*words[300:320], *words[40:89], *words[320:340]])  # 49 words
    for name, text in (("a", first), ("b", second), ("c", third)):
        write_texts(tmp_path / "in" / f"{name}.jsonl", [text])
    assert clean(tmp_path / "in", "-o", tmp_path / "out", "--deduplicate", "substrings") == 0
    expected = " ".join(words[200:240])
    assert [" ".join(text.split()) for text in read_texts(tmp_path / "out")] == [
        first,
        expected,
        third,
    ]


EVERYTHING = ("--rule", "c4", "--deduplicate", "spans", "--deduplicate", "documents")


@pytest.mark.long
@pytest.mark.parametrize("options", [EVERYTHING[:4], EVERYTHING], ids=len)
def test_the_number_of_processes_does_not_matter(
    options: tuple[str, ...], crawl: Path, tmp_path: Path
) -> None:
    assert clean(crawl, "-o", tmp_path / "one", *options, "--workers", 1) == 0
    assert clean(crawl, "-o", tmp_path / "two", *options, "--workers", 2) == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    texts = read_texts(tmp_path / "one")
    assert len(texts) == 20
    assert sum(SENTENCES[1] in text for text in texts) == 1
    assert [text for text in texts if "Home" in text] == []
    assert not (tmp_path / "one.part").exists()


@pytest.mark.long
@pytest.mark.parametrize("deduplication", ["lines", "spans", "substrings", "documents"])
def test_pieces_of_a_file_are_cleaned_as_the_whole_file(
    deduplication: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [text for number in range(3) for text in synthetic_texts(number, 10)]
    source = write_texts(tmp_path / "a.jsonl", texts)
    options = ("--rule", "c4", "--deduplicate", deduplication, "--workers", 2)
    records = []
    for name, piece_bytes in (("whole", 1 << 20), ("pieces", 2000)):
        monkeypatch.setattr(parts, "MIN_PIECE_BYTES", piece_bytes)
        assert clean(source, "-o", tmp_path / name, *options) == 0
        records.append(json.loads((tmp_path / name / "cleaning.json").read_text()))
    assert records[0]["plan"]["parts"] == 1
    assert records[1]["plan"]["parts"] > 3
    assert records[0]["rules"] == records[1]["rules"]
    assert records[0]["stages"] == records[1]["stages"]
    assert read_rows(tmp_path / "pieces") == read_rows(tmp_path / "whole")
    assert 0 < len(read_rows(tmp_path / "whole")) < len(texts)


SLOW_RULE = """
import os, time
from dataclasses import dataclass
from typing import ClassVar
from zoo.cleaning.rules import BUILT_IN
from zoo.cleaning.rules.base import CleaningRule

@dataclass(frozen=True, kw_only=True)
class Slow(CleaningRule):
    name: ClassVar[str] = "slow"
    folder: str = ""

    def make_cleaner(self, language, count_line):
        path = os.path.join(self.folder, f"{os.getpid()}.pid")
        open(path, "w").close()

        def clean(text):
            time.sleep(0.02)
            return text

        return clean

BUILT_IN["slow"] = "slow_rule:Slow"
"""
START = "import slow_rule; from zoo.cli import main; main()"


def start_slowly(folder: Path, *words: object) -> "subprocess.Popen[str]":
    """Start cleaning with a rule that takes a while, and says which processes run it."""
    (folder / "slow_rule.py").write_text(SLOW_RULE)
    command = ["corpus", "clean", *map(str, words), "--rule", "slow"]
    return subprocess.Popen(
        [sys.executable, "-c", START, *command, "--set", f"slow.folder={folder}"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_processes(folder: Path, count: int) -> list[int]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        numbers = [int(path.stem) for path in folder.glob("*.pid")]
        if len(numbers) >= count:
            return numbers
        time.sleep(0.02)
    raise TimeoutError("no process has begun")


@pytest.mark.long
@pytest.mark.parametrize("process", ["a worker", "the command"])
def test_a_killed_process_changes_nothing(process: str, crawl: Path, tmp_path: Path) -> None:
    options = (*EVERYTHING, "--workers", 2)
    running = start_slowly(tmp_path, crawl, "-o", tmp_path / "out", *options)
    numbers = wait_for_processes(tmp_path, 1)
    os.kill(numbers[0] if process == "a worker" else running.pid, signal.SIGKILL)
    _, errors = running.communicate(timeout=300)
    if process == "a worker":
        assert running.returncode == 0, errors
        assert "was killed by SIGKILL; it is started again" in errors
    else:
        assert running.returncode == -signal.SIGKILL
        assert not (tmp_path / "out").exists()
        refused = start_slowly(tmp_path, crawl, "-o", tmp_path / "out", *options)
        _, errors = refused.communicate(timeout=300)
        assert refused.returncode == 2
        assert "is an interrupted cleaning; --resume continues it" in errors
        resumed = start_slowly(tmp_path, crawl, "-o", tmp_path / "out", *options, "--resume")
        _, errors = resumed.communicate(timeout=300)
        assert resumed.returncode == 0, errors
    assert clean(crawl, "-o", tmp_path / "plain", *EVERYTHING, "--workers", 1) == 0
    assert read_rows(tmp_path / "out") == read_rows(tmp_path / "plain")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing is to be dropped; give --rule or --deduplicate"),
        (("--rule", "c5"), "no cleaning rule is called 'c5'"),
        (("--rule", "c4", "--set", "c4.min_sentences=3"), "has no setting 'min_sentences'"),
        (("--rule", "c4", "--set", "c4.min_num_sentences=x"), "the rule c4: Expected `int`"),
        (("--rule", "c4", "--set", "gopher.x=1"), "--set gopher: there is no such --rule"),
        (("--rule", "language"), "the rule language: Object missing required field `model`"),
        (("--rule", "c4", "--executor-arg", "time=1"), "--executor-arg is for ray and slurm"),
        (("--rule", "c4", "--resume"), "does not exist; leave --resume out"),
        (("--rule", "c4", "--language", "xx"), "no words of the language 'xx' are known"),
    ],
)
def test_wrong_usage_is_one_line(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_texts(tmp_path / "in" / "a.jsonl", [PROSE])
    assert clean(source, "-o", tmp_path / "out", *words) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1
    assert os.listdir(tmp_path) == ["in"]


def test_outputs_that_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_texts(tmp_path / "a.jsonl", [PROSE])
    output = tmp_path / "out"
    assert clean(source, "-o", output, "--rule", "c4") == 0
    assert clean(source, "-o", output, "--rule", "c4") == 2
    assert "exists; give --force to replace it" in capsys.readouterr().err
    assert clean(source, "-o", output, "--rule", "gopher-repetition", "--force") == 0
    record = json.loads((output / "cleaning.json").read_bytes())
    assert [rule["name"] for rule in record["plan"]["rules"]] == ["gopher-repetition"]
    (output / "texts" / "mine.txt").write_text("mine")
    assert clean(source, "-o", output, "--rule", "c4", "--force") == 2
    assert "holds texts/mine.txt, which zoo did not write" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{}", '{"zoo": 1}', "my plan"])
def test_a_directory_of_somebody_else_is_left(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_texts(tmp_path / "a.jsonl", [PROSE])
    work = tmp_path / "out.part"
    (work / "parts").mkdir(parents=True)
    (work / "plan.json").write_text(content)
    (work / "parts" / "mine.txt").write_text("mine")
    for option in ("--force", "--resume"):
        assert clean(source, "-o", tmp_path / "out", "--rule", "c4", option) == 2
        assert "is not an interrupted cleaning" in capsys.readouterr().err
    assert (work / "parts" / "mine.txt").read_text() == "mine"


def test_a_list_that_changes_meanwhile_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_texts(tmp_path / "a.jsonl", [PROSE])
    words = tmp_path / "words.txt"
    words.write_text("darn\n")
    run = LocalExecutor.run

    def change_and_run(self: LocalExecutor, *arguments: Any) -> None:
        words.write_text("mayor\n")
        run(self, *arguments)

    monkeypatch.setattr(LocalExecutor, "run", change_and_run)
    rule = ("--rule", "blocked-words", "--set", f"blocked-words.file={words}")
    assert clean(source, "-o", tmp_path / "out", *rule) == 3
    assert "a file changed while it was cleaned" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_bad_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for workers in (1, 2):
        source = write_texts(tmp_path / "in" / "a.jsonl", [PROSE])
        write_texts(tmp_path / "in" / "b.jsonl", [PROSE])
        source.write_text("not JSON\n")
        output = tmp_path / f"out{workers}"
        words = ("-o", output, "--rule", "c4", "--workers", workers)
        assert clean(tmp_path / "in", *words) == 3
        errors = capsys.readouterr().err
        assert "a.jsonl, line 1 is not JSON" in errors and errors.count("\n") == 1
        assert not output.exists()
        # The text is mended: the cleaning goes on only with the same files.
        write_texts(source, [PROSE])
        assert clean(tmp_path / "in", *words, "--resume") == 2
        assert "was begun with other sources" in capsys.readouterr().err
        assert clean(tmp_path / "in", *words, "--force") == 0


@pytest.mark.long
@pytest.mark.usefixtures("isolated")
def test_a_corpus_keeps_what_was_dropped(tmp_path: Path) -> None:
    source = write_texts(tmp_path / "a.jsonl", [*synthetic_texts(0, 10), "Too short."])
    assert clean(source, "-o", tmp_path / "clean", "--rule", "c4") == 0
    build = ("corpus", "build", str(tmp_path / "clean"), "-o", str(tmp_path / "corpus"))
    train = ("--tokenizer", "train", "--family", "bert", "--vocab-size", "200", "--quiet")
    assert exit_code([*build, *train]) == 0
    record = json.loads((tmp_path / "corpus" / "corpus.json").read_bytes())
    documents = [split["documents"] for split in record["splits"].values()]
    assert sum(documents) == 11
    (cleaning,) = record["cleaning"].values()
    assert cleaning["rules"][0]["dropped"] == {"too-few-sentences": 1}
    assert cleaning == json.loads((tmp_path / "clean" / "cleaning.json").read_bytes())
    assert exit_code(["verify", str(tmp_path / "corpus"), "--quiet"]) == 0

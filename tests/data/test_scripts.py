"""Corpus builds from scripts: one without a main guard, and one whose workers die at start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = {"[UNK]": 0, **{f"word{number}": number for number in range(1, 20_000)}}
SCRIPT = """
import sys
from pathlib import Path
from zoo.data.cache import cached_corpus
from zoo.data.tokenizer import ExistingTokenizer
from zoo.tokenizers.info import TokenizerInfo

print("begun", flush=True)
text, tokenizer = map(Path, sys.argv[1:])
given = ExistingTokenizer(tokenizer.read_bytes(), TokenizerInfo(special={"unk": "[UNK]"}))
corpus = cached_corpus([text], given, eval_fraction=0.0, workers=2)
print(corpus.split("train").read(0, 3).tolist(), corpus.split("train").tokens)
"""
DIES = """
import os, sys

if "--multiprocessing-fork" in sys.orig_argv:
    os._exit(3)
"""


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """Return the command that runs the script; its tokenizer exceeds the capacity of a pipe."""
    tokenizer = Tokenizer(models.WordLevel(WORDS, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    texts = [{"text": f"word{n} word{n + 1} other"} for n in range(1, 10_000)]
    made = {
        "script.py": SCRIPT,
        "text.jsonl": "\n".join(map(json.dumps, texts)),
        "tokenizer.json": tokenizer.to_str(),
    }
    assert len(made["tokenizer.json"]) > 1 << 17
    for name, content in made.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    return [sys.executable, *(str(tmp_path / name) for name in made)]


def run(arguments: list[str], tmp_path: Path, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "ZOO_HOME": str(tmp_path / "home"), **environment},
    )
    return done.returncode, done.stdout, done.stderr


def test_a_script_that_guards_nothing_runs_once(arguments: list[str], tmp_path: Path) -> None:
    code, out, err = run(arguments, tmp_path)
    assert code == 0, err
    assert out.splitlines() == ["begun", "[1, 2, 0] 29997"]


def test_processes_that_die_at_once_are_named(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(DIES, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    code, out, err = run(arguments, tmp_path, PYTHONPATH=path.strip(os.pathsep))
    assert (code, out) == (1, "begun\n")
    assert "UsageError: a process that tokenizes was killed" in err.splitlines()[-1]
    assert not list((tmp_path / "home").rglob("corpus.json"))

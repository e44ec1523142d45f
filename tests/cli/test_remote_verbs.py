"""Every command that reads or writes files, with all of them in a bucket that fails requests."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm
from tests.cli.test_remote_outputs import contents, local_contents, uploads
from tests.faults import newer
from tests.remote import Store, store

__all__ = ["store"]

Words = Callable[[str, str], list[object]]
STEPS = ("--max-steps", "2", "--device", "cpu", "--offline")
TEXT_STEPS = (
    *("--set", "seq_len=16", "--set", "global_batch_tokens=64", "--set", "micro_batch_tokens=64"),
    *("--set", "vocab_size=300", "--set", "eval_sequences=1"),
)
TASK = newer.TASK
# Verb -> its words, of the folder of the inputs and of the one for the outputs.
VERBS: dict[str, Words] = {
    "convert": lambda i, o: ["convert", f"{i}/hub", "--tokenizer", f"{i}/model", "-o", f"{o}/x"],
    "retokenize": lambda i, o: [
        *("retokenize", f"{i}/base", "--tokenizer", "train", "--train", f"{i}/texts.txt"),
        *("--vocab-size", 280, "-o", f"{o}/x"),
    ],
    "retokenize by a file": lambda i, o: [
        *("retokenize", f"{i}/base", "--tokenizer", f"{i}/model/tokenizer.json", "-o", f"{o}/x")
    ],
    "export": lambda i, o: [
        *("export", f"{i}/base", "--adapter", f"{i}/adapter", "--int8", "static", "--max-drop", 1),
        *("--calibration", f"{i}/texts.txt", "--eval", f"{i}/table.jsonl", "-o", f"{o}/x"),
    ],
    "adapter merge": lambda i, o: [
        *("adapter", "merge", f"{i}/adapter", "--base", f"{i}/base", "-o", f"{o}/x")
    ],
    "adapter extract": lambda i, o: [
        *("adapter", "extract", f"{i}/base", f"{i}/model", "--rank", 2, "-o", f"{o}/x")
    ],
    "adapter list": lambda i, o: ["adapter", "list", f"{i}/adapter"],
    "info": lambda i, o: ["info", f"{i}/model"],
    "verify": lambda i, o: ["verify", f"{i}/model"],
    "push": lambda i, o: ["push", f"{i}/hub", "someone/model"],
    "mine-negatives": lambda i, o: [
        *("mine-negatives", f"{i}/base", "--input", f"{i}/pairs.jsonl"),
        *("--corpus", f"{i}/rows.jsonl", "-o", f"{o}/x/negatives.jsonl"),
    ],
    "look": lambda i, o: [
        *("look", f"{i}/model", "a text", "--compare", f"{i}/base", "-o", f"{o}/x/look.html")
    ],
    "tokenize": lambda i, o: ["tokenize", f"{i}/model", "a text"],
    "run search": lambda i, o: ["run", "search", f"{i}/base", "a", "--corpus", f"{i}/rows.jsonl"],
    "run with an adapter": lambda i, o: [
        *("run", "classify", f"{i}/base", "--input", f"{i}/rows.jsonl"),
        *("--adapter", f"{i}/adapter", "-o", f"{o}/x/rows.csv"),
    ],
    "eval": lambda i, o: [
        *("eval", f"{i}/model", *TASK, "--eval", f"{i}/table.jsonl", "--figures", f"{o}/x"),
        *("--predictions", f"{o}/y/rows.jsonl", "--report", f"{o}/z/report.html"),
    ],
    "examples": lambda i, o: [
        *("examples", "gpt", "--train", f"{i}/texts.txt", "--tokenizer", f"{i}/gpt"),
        *("--count", 1, "--max-seq-len", 16),
    ],
    "finetune": lambda i, o: [
        *("finetune", f"{i}/base", *TASK, "--train", f"{i}/table.jsonl", "--seeds", 2),
        *("--eval", f"{i}/table.jsonl", *STEPS, "-o", f"{o}/x"),
    ],
    "finetune a mixture": lambda i, o: [
        *("finetune", f"{i}/base", *TASK, "--train", f"a={i}/table.jsonl", *STEPS),
        *("--train", f"b={i}/other.jsonl", "--weight", "a=0.25", "--weight", "b=0.75"),
        *("-o", f"{o}/x"),
    ],
    "distill": lambda i, o: [
        *("distill", f"{i}/distill.yaml", "--teacher", f"{i}/model", *STEPS, "--no-score"),
        *("--train", f"{i}/table.jsonl", "-o", f"{o}/x"),
    ],
    "pretrain": lambda i, o: [
        *("pretrain", "--init-from", f"{i}/gpt", "--train", f"{i}/texts.txt", *STEPS),
        *(*TEXT_STEPS, "--seeds", 2, "-o", f"{o}/x"),
    ],
    "pretrain on a stream": lambda i, o: [
        *("pretrain", "gpt", "--size", "tiny", "--train", f"{i}/stream", "--streaming"),
        *("--tokenizer", f"{i}/gpt", "--set", "data.stream.eval_documents=4"),
        *(*STEPS, *TEXT_STEPS, "-o", f"{o}/x"),
    ],
    "compare": lambda i, o: ["compare", f"{i}/runs/one", "--figures", f"{o}/x"],
    "check": lambda i, o: [
        *("check", "accumulation", "gpt", "--size", "tiny", "--train", f"{i}/texts.txt"),
        *(*TEXT_STEPS, "--offline"),
    ],
}
# These have times or the names of files, and digests of files that have them.
OWN_NAMES = (
    *("zoo.json", "run.json", "config.yaml", "state.json", "seeds.json", "performance.jsonl"),
    *("report.html", "summary.json", "mistakes.json", ".lock"),
)


def write_inputs(folder: Path) -> Path:
    """Return a folder with models, an adapter, a run, texts and tables."""
    inputs = newer.newer_inputs(folder)
    lines = (inputs / "table.jsonl").read_text().splitlines()
    (inputs / "other.jsonl").write_text("\n".join(lines[:20]))
    texts = [json.loads(line)["text"] for line in lines]
    tables = {
        "rows": [{"text": text} for text in texts],
        "pairs": [{"text": text, "pair": text[::-1]} for text in texts[:20]],
        "stream/first": [{"text": text} for text in texts[:20]],
        "stream/second": [{"text": text} for text in texts[20:]],
    }
    (inputs / "stream").mkdir()
    for name, rows in tables.items():
        content = "".join(f"{json.dumps(row)}\n" for row in rows)
        (inputs / f"{name}.jsonl").write_text(content)
    run_zoo("convert", inputs / "model", "--head", "none", "-o", inputs / "base")
    pretrained = ["pretrain", "gpt", "--size", "tiny", "--train", inputs / "texts.txt"]
    run_zoo(*pretrained, *STEPS, *TEXT_STEPS, "-o", inputs / "runs" / "one")
    shutil.copytree(inputs / "runs" / "one" / "model", inputs / "gpt")
    finetuned = ["finetune", inputs / "base", *TASK, "--train", inputs / "table.jsonl", *STEPS]
    run_zoo(*finetuned, "--adapter", "lora", "-o", inputs / "adapter-run")
    shutil.move(inputs / "adapter-run" / "model", inputs / "adapter")
    shutil.rmtree(inputs / "adapter-run")
    return inputs


def run_zoo(*words: object) -> str:
    """Run a command that has to work; return its standard output."""
    done = warm.zoo(*words)
    assert done.returncode == 0, done.stderr
    assert "downloads" not in done.stdout + done.stderr
    assert "uploads" not in done.stdout + done.stderr
    return done.stdout


def with_local_names(text: str, store: Store, inputs: Path) -> str:
    """Return a text with local paths in place of those of a bucket, and without widths."""
    text = text.replace(store.at("in"), str(inputs)).replace(store.at("out"), "local")
    return re.sub(r"[ \d.]+", " ", text)


@pytest.mark.long
def test_every_verb_computes_the_same_from_and_to_a_bucket(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = write_inputs(tmp_path / "in")
    store.put_folder(inputs, "in")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for number, (name, words) in enumerate(VERBS.items()):
        expected = run_zoo(*words(str(inputs), f"local/{number}"))
        store.failing = 0.1
        printed = run_zoo(*words(store.at("in"), store.at(f"out/{number}")))
        store.failing = 0
        assert with_local_names(printed, store, inputs) == re.sub(r"[ \d.]+", " ", expected), name
        remote_files = contents(store, f"out/{number}")
        local_files = local_contents(Path("local", str(number)))
        for files in (remote_files, local_files):
            for file_name in list(files):
                for copies in (b"zoo-home/downloads", b"zoo-home/uploads"):
                    assert copies not in files[file_name], (name, file_name)
                if "tfevents" in file_name or file_name.endswith(OWN_NAMES):
                    del files[file_name]
        assert remote_files.keys() == local_files.keys(), name
        assert bool(local_files) == ("-o" in words("", "") or "--figures" in words("", "")), name
        for file_name, content in local_files.items():
            remote_content = remote_files[file_name].replace(
                store.at("in").encode(), str(inputs).encode()
            )
            assert remote_content == content, (name, file_name)
        assert uploads() == [], name
    assert store.failed > 50

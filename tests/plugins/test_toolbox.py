"""The plugin without a family, installed by pip: its parts are driven by the ordinary commands."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from tests import warm
from tests.checkpoints import SMALL, VOCABULARY
from tests.inference.making import make_checkpoint
from tests.plugins.installed import Installed
from tests.plugins.making import EXAMPLES
from tests.training.runs import DATA, WIDTH

SHORT = {"seq_len": 32, "global_batch_tokens": 256, "max_steps": 4, "eval_sequences": 4}
SET = [f"--set={name}={value}" for name, value in SHORT.items()]
NARROW = [f"--set=config.{name}={value}" for name, value in WIDTH.items()]
NEW = [
    *SET,
    *NARROW,
    "--set=vocab_size=400",
    "--set=lr_scheduler.warmup_steps=1",
    "--device",
    "cpu",
]


@pytest.fixture(scope="module")
def toolbox(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("toolbox"), EXAMPLES / "toolbox")


def test_everything_is_listed(toolbox: Installed) -> None:
    (plugin,) = toolbox.zoo("plugins", "info", "toolbox")["plugins"]
    assert plugin["health"] == "ok" and len(plugin["record_sha256"]) == 64
    assert plugin["provides"] == {
        "formats": ["npz"],
        "checkpoints": ["paraphrase-minilm-l3-v2"],
        "recipes": ["soft-labels"],
        "loggers": ["csv"],
        "objectives": ["masked-lm+same-document", "masked-lm+word-order"],
        "tasks": ["count-regression", "next-token"],
        "metrics": ["median_error"],
        "commands": ["tokens"],
        "targets": ["program"],
        "embedding_losses": ["power"],
        "adapters": ["key-factors"],
        "optimizers": ["momentum"],
        "cleaning_rules": ["no-tables"],
    }
    assert toolbox.zoo("info", "paraphrase-minilm-l3-v2")["parameters"] == 17_389_824
    help_text, run_help = (toolbox.python("zoo", *words, "--help") for words in ((), ("run",)))
    assert "tokens  See zoo-toolbox 0.1.0." in help_text.partition("Commands of plugins")[2]
    assert "next-token" in run_help
    assert "static, program." in " ".join(toolbox.python("zoo", "export", "--help").split())


def test_format_and_command(toolbox: Installed) -> None:
    """A model of the reference library in NumPy's format, and its tokens."""
    torch.manual_seed(0)
    config: Any = transformers.BertConfig
    model = transformers.BertModel(config(**SMALL))
    hub = toolbox.folder / "hub"
    model.save_pretrained(hub)
    (hub / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    toolbox.zoo("convert", "hub", "-o", "from-safetensors")
    weights = load_file(hub / "model.safetensors")
    (hub / "model.safetensors").unlink()
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in weights.items()}
    np.savez(hub / "model.npz", **arrays)
    toolbox.zoo("convert", "hub", "-o", "from-npz")
    first, second = (
        load_file(toolbox.folder / name / "model.safetensors")
        for name in ("from-safetensors", "from-npz")
    )
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    text = " ".join(VOCABULARY[-3:])
    (tokens,) = toolbox.zoo("tokens", "from-npz", text)["texts"]
    reference = transformers.BertTokenizer.from_pretrained(hub)
    assert tokens["ids"] == reference(text)["input_ids"]
    assert tokens["tokens"] == reference.convert_ids_to_tokens(tokens["ids"])


# test_scaffold.py exports with the target of a plugin, and tests the generated project.
@pytest.mark.long
def test_export_target(toolbox: Installed) -> None:
    make_checkpoint(toolbox.folder / "small", num_layers=1)
    report = toolbox.zoo("export", "small", "--to", "program")
    assert report["validated"] and report["max_rel"] < 1e-5
    assert [check["tokens"] for check in report["checks"][:4]] == [1, 17, 40, 5]
    measured = toolbox.zoo("bench", "small-program", "--iterations", "2", "--no-startup")
    assert [result["backend"] for result in measured["results"]] == ["program"]
    # of weights, which are exported on first use
    sides = ("--backend", "cpu", "--backend", "program")
    measured = toolbox.zoo("bench", "small", *sides, "--iterations", "2", "--no-startup")
    assert [result["backend"] for result in measured["results"]] == ["cpu", "program"]
    assert measured["results"][1]["difference"] < 1e-5
    assert list((toolbox.folder / "home/exports/program").glob("*/model.pt2")) != []


@pytest.mark.parametrize(
    "words", [("export", "x", "--to", "pro"), ("run", "embed", "x", "--backend", "pro")]
)
def test_targets_are_completed(
    words: tuple[str, ...], toolbox: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_ZOO_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "\n".join(["zoo", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert toolbox.python("zoo").split() == ["plain,program"]


def test_objective_logger_and_recipe(toolbox: Installed) -> None:
    named = ("--objective", "masked-lm+word-order", "--report-to", "csv")
    toolbox.zoo("pretrain", "bert", *named, *DATA, *NEW, "-o", "run")
    log = [json.loads(line) for line in (toolbox.folder / "run/metrics.jsonl").open()]
    losses = [record["losses"] for record in log if record["split"] == "train"]
    assert {tuple(sorted(loss)) for loss in losses} == {("masked-lm", "word-order")}
    with open(toolbox.folder / "run/metrics.csv") as file:
        table = list(csv.DictReader(file))
    rows = {(int(row["step"]), row["name"]): float(row["value"]) for row in table}
    for record in log:
        assert rows[record["step"], f"{record['split']}/loss"] == record["loss"]
    recipe = ("--recipe", "soft-labels", "--student", "bert", "--teacher", "run/model")
    narrow = [f"--set=student.{name}={value}" for name, value in WIDTH.items()]
    toolbox.zoo("distill", *recipe, *DATA, *SET, *narrow, "--device", "cpu", "-o", "student")
    log = [json.loads(line) for line in (toolbox.folder / "student/metrics.jsonl").open()]
    assert {name for record in log for name in record["losses"]} == {"kl"}


def test_objective_of_sentence_pairs(toolbox: Installed) -> None:
    named = ("--objective", "masked-lm+same-document", "--report-to", "jsonl")
    toolbox.zoo("pretrain", "bert", *named, *DATA, *NEW, "-o", "pairs")
    log = [json.loads(line) for line in (toolbox.folder / "pairs/metrics.jsonl").open()]
    (*_, last) = [record for record in log if record["split"] == "validation"]
    assert last["losses"].keys() == {"masked-lm", "same-document"}
    assert last["losses"]["same-document"] > 0 and "pair_accuracy" in last["metrics"]


def test_task(toolbox: Installed) -> None:
    """Probabilities are the reference library's; other heads are refused."""
    toolbox.zoo("pretrain", "gpt", *DATA, *NEW, "-o", "gpt")
    toolbox.zoo("convert", "gpt/model", "--to", "hub", "-o", "gpt-hub")
    texts = ("Alice was", "the")
    results = toolbox.zoo("run", "next-token", "gpt/model", *texts, "--top-k", "3")["results"]
    model = transformers.AutoModelForCausalLM.from_pretrained(toolbox.folder / "gpt-hub")
    tokenizer = transformers.AutoTokenizer.from_pretrained(toolbox.folder / "gpt-hub")
    for text, result in zip(texts, results, strict=True):
        with torch.no_grad():
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0, -1]
        best = logits.double().softmax(0).topk(3)
        predicted = [(item["token"], item["score"]) for item in result["next"]]
        assert [token for token, _ in predicted] == tokenizer.convert_ids_to_tokens(best.indices)
        assert np.allclose([score for _, score in predicted], best.values, rtol=1e-4, atol=1e-7)


@pytest.mark.long
def test_a_whole_task(toolbox: Installed) -> None:
    """One entry point brings finetune, run, eval and export --eval."""
    rows = [(f"{'dog ' * count}in the garden {k}", count) for k in range(30) for count in range(4)]
    table = toolbox.folder / "counts.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{text}\t{count}\n" for text, count in rows))
    named = ("--task", "count-regression", "--train", "counts.tsv", "--size", "tiny")
    steps = (
        "--max-steps",
        "30",
        *NARROW,
        "--set",
        "vocab_size=300",
        "--set",
        "optimizer.learning_rate=2e-3",
    )
    toolbox.zoo("finetune", "bert", *named, *steps, "-o", "counts")
    model = "counts/model"
    data = ("--eval", "counts.tsv", "--seed", "1")
    metrics = toolbox.zoo("eval", model, "--task", "count", *data)["metrics"]
    assert metrics["spearman"] > 0.5, metrics
    (result,) = toolbox.zoo("run", "count-regression", model, "dog dog dog")["results"]
    (score,) = toolbox.zoo("run", "regression", model, "dog dog dog")["results"]
    assert result["count"] == pytest.approx(np.exp(score["score"]), rel=1e-5)
    eval_file = ("--int8", "--eval", "counts.tsv", "--max-drop", "1")
    exported = toolbox.zoo("export", model, "--onnx", *eval_file, "-o", "counts-onnx")
    assert "spearman" in json.dumps(exported)
    table.write_text("text\tlabel\na dog\t-1\na cat\t2\n")
    refused = warm.zoo(
        "finetune", "bert", *named, "-o", "no", cwd=toolbox.folder, **toolbox.environment
    )
    assert refused.returncode == 2 and "the count -1 is negative" in refused.stderr


def test_the_embedding_loss_is_in_the_help_of_the_task(toolbox: Installed, tmp_path: Path) -> None:
    words = ("finetune", "--task", "sentence-embedding", "--help")
    done = warm.zoo(*words, cwd=tmp_path, **toolbox.environment)
    assert done.returncode == 0, done.stderr
    _, _, losses = done.stdout.partition("Losses, as --set task_args.loss=NAME:\n")
    losses = " ".join(losses.partition("\nOptions:\n")[0].split())
    assert "softmax cross-entropy of the classes of pairs" in losses
    assert "power power of the error of the cosine similarities of pairs with scores" in losses
    late = warm.zoo(
        "finetune", "--task", "late-interaction", "--help", cwd=tmp_path, **toolbox.environment
    )
    assert "kl-div" in late.stdout and "softmax" not in late.stdout


def test_a_head_that_a_task_does_not_support(toolbox: Installed, tmp_path: Path) -> None:
    from tests.inference.making import make_checkpoint
    from tests.warm import zoo

    path = make_checkpoint(tmp_path / "model", num_layers=1).path
    done = zoo("run", "next-token", path, "a", cwd=tmp_path, **toolbox.environment)
    assert done.returncode == 2 and "not next-token" in done.stderr

"""Bad input for sentence models at the command line: one clear line, and nothing is written."""

import json
import shutil
from pathlib import Path

import click
import pytest

from tests.checkpoints import Make, hub_checkpoint
from tests.inference.conftest import converted
from tests.tasks.reranker.making import sparse
from zoo.cli import cli, failure
from zoo.errors import ZooError
from zoo.io.paths import home
from zoo.sentence_models.modules import DenseModule, PoolingModule
from zoo.sentence_models.pooling import Pooling
from zoo.sentence_models.sentence_transformers_files import hub_pooling_files

__all__ = ["hub_checkpoint"]
Case = tuple[tuple[str, ...], str]
CASES: list[Case] = [
    (
        ("run", "embed", "encoder", "--prompt", "qury", "a"),
        "no prompt 'qury': its prompts are query; did you mean query?",
    ),
    (("run", "classify", "reranker", "a"), "one text, and the model compares two"),
    (("run", "search", "reranker", "--corpus", "pairs.tsv", "a"), "; `zoo run rerank` sorts"),
    (
        ("eval", "encoder", "--task", "retrieval", "--eval", "beir"),
        "judges 'd7', which is not among the texts of",
    ),
    (("run", "embed", "encoder", "--dim", "33", "a"), "cannot be cut at 33 numbers"),
    (("export", "reranker", "--pooled", "-o", "out"), "whose graph is the plain one"),
    (("export", "sparse", "--pooled", "--dim", "4", "-o", "out"), "of words, which are not cut"),
    (
        (
            *("finetune", "encoder", "--task", "sentence-embedding", "--train", "pairs.tsv"),
            *("--pair", "pair", "--set", "task_args.loss=multiple-negative", "-o", "run"),
        ),
        "loss is 'multiple-negative'; did you mean multiple-negatives",
    ),
    (
        (
            *("finetune", "encoder", "--task", "sentence-embedding", "--train", "pairs.tsv"),
            *("--pair", "pair", "--set", "task_args.matryoshka=[64,8]", "-o", "run"),
        ),
        "matryoshka is 64, and embeddings have 32 dimensions; give numbers up to 32",
    ),
    (
        ("convert", "wide", "-o", "out"),
        "wide: 2_Dense: in_features of Dense is 48, but what it reads has a width of 32",
    ),
]
BROKEN = "wide"  # a model whose files do not fit together, which is not wrong usage


def make_files(hub_checkpoint: Make, folder: Path) -> None:
    """Write an encoder with a prompt, a reranker, an encoder with a wrong Dense, and data."""
    encoder = hub_checkpoint("BertModel")
    wide = Pooling(modules=(PoolingModule(), DenseModule(in_features=48, out_features=4)))
    for name, pooling in (("encoder", Pooling(prompts={"query": "q "})), ("wide", wide)):
        source = folder / f"{name}-hub" if name == "encoder" else folder / name
        shutil.copytree(encoder, source)
        for file, content in hub_pooling_files(pooling, 32 if name == "encoder" else 48).items():
            (source / file).parent.mkdir(exist_ok=True)
            (source / file).write_bytes(content)
    converted(folder / "encoder-hub", folder / "encoder")
    function = {"activation_fn": "torch.nn.modules.linear.Identity", "version": "6.2.0"}
    reranker = hub_checkpoint(
        "BertForSequenceClassification", "other", num_labels=1, sentence_transformers=function
    )
    converted(reranker, folder / "reranker")
    sparse(hub_checkpoint).save(str(folder / "splade"), create_model_card=False)
    converted(folder / "splade", folder / "sparse")
    (folder / "pairs.tsv").write_text("text\tpair\na\tb\nc\td\n")
    (folder / "beir" / "qrels").mkdir(parents=True)
    for file, row in (("corpus", "d1"), ("queries", "q1")):
        line = json.dumps({"_id": row, "text": "a b"})
        (folder / "beir" / f"{file}.jsonl").write_text(line + "\n")
    (folder / "beir" / "qrels" / "test.tsv").write_text("q1\td7\t1\n")


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command in this process; return its exit code, and what it writes to standard error."""
    try:
        cli.main(arguments, prog_name="zoo", standalone_mode=False)
    except (click.ClickException, ZooError) as error:
        return failure.report(error, arguments), capsys.readouterr().err
    return 0, capsys.readouterr().err


def test_bad_input_is_one_line(
    hub_checkpoint: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And nothing is written."""
    make_files(hub_checkpoint, tmp_path)
    monkeypatch.chdir(tmp_path)
    home().mkdir(exist_ok=True)  # which has what was verified
    before = sorted(tmp_path.iterdir())
    for words, message in CASES:
        code, written = run(list(words), capsys)
        errors = [line for line in written.splitlines() if line.startswith("error")]
        assert (code, len(errors)) == (3 if BROKEN in words else 2, 1), (words, written)
        assert message in " ".join(written.split())
    assert sorted(tmp_path.iterdir()) == before

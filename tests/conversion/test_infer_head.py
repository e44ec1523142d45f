"""Inference of the head from tensors, for a configuration without ``architectures``."""

import json
import re
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from zoo.conformance.golden import Golden
from zoo.conversion.convert import convert
from zoo.errors import UsageError, VerificationError
from zoo.hub.source import CheckpointDir

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(p for p in GOLDEN.glob("*/*.safetensors") if p.parent.name != "elmo")
# Heads that the tensors do not determine: a text classifier has the shapes of a token classifier,
# with one class also of a multiple-choice head. Tied output layers are not in the file.
TEXTS = {"sequence-classification", "token-classification"}
OPEN = {
    ("albert", "sequence-classification"): TEXTS,
    ("albert", "regression"): {*TEXTS, "multiple-choice"},
    ("bart", "none"): {"none", "seq2seq-lm"},
    ("bert", "sequence-classification"): TEXTS,
    ("bert", "regression"): {*TEXTS, "multiple-choice"},
    ("distilbert", "regression"): {"sequence-classification", "multiple-choice"},
    # all of its classifiers have the same tensors, with two classes also the spans of answers
    ("modernbert", "sequence-classification"): TEXTS,
    ("modernbert", "token-classification"): TEXTS,
    ("modernbert", "classification-by-mean"): {*TEXTS, "question-answering"},
    ("modernbert", "question-answering"): {*TEXTS, "question-answering"},
    ("modernbert", "regression"): {*TEXTS, "multiple-choice"},
    ("gpt", "none"): {"none", "causal-lm"},
    ("gpt", "causal-lm"): {"none", "causal-lm"},
    ("gpt", "causal-lm-scaled"): {"none", "causal-lm"},
    ("gpt", "first-none"): {"none", "causal-lm"},
    ("gpt", "first-causal-lm"): {"none", "causal-lm"},
    ("t5", "none"): {"none", "seq2seq-lm"},
    ("t5", "version-1.1-none"): {"none", "seq2seq-lm"},
    ("t5", "seq2seq-lm"): {"none", "seq2seq-lm"},
    ("t5", "umt5"): {"none", "seq2seq-lm"},
    ("bloom", "none"): {"none", "causal-lm"},
    ("bloom", "causal-lm"): {"none", "causal-lm"},
    ("bigbird_pegasus", "none"): {"none", "seq2seq-lm"},
    ("ernie", "sequence-classification"): TEXTS,
    ("gte", "sequence-classification"): {"none", *TEXTS},
    ("llama", "gemma2"): {"none", "causal-lm"},
    ("llama", "gemma3"): {"none", "causal-lm"},
    ("llama", "smollm3"): {"none", "causal-lm"},
    ("m2m100", "none"): {"none", "seq2seq-lm"},
    ("m2m100", "seq2seq-lm"): {"none", "seq2seq-lm"},
    ("marian", "none"): {"none", "seq2seq-lm"},
    ("nomic", "sequence-classification"): TEXTS,
    ("opt", "none"): {"none", "causal-lm"},
    ("opt", "causal-lm"): {"none", "causal-lm"},
    ("opt", "xglm"): {"none", "causal-lm"},
    ("pegasus", "none"): {"none", "seq2seq-lm"},
}


def without_a_class(path: Path, case: Golden) -> CheckpointDir:
    path.mkdir()
    save_file(case.weights, path / "model.safetensors", {"format": "pt"})
    hub = {key: value for key, value in case.hub_config.items() if key != "architectures"}
    (path / "config.json").write_text(json.dumps(hub))
    return CheckpointDir(path, str(path))


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_inferred_head(tmp_path: Path, path: Path) -> None:
    case, family = Golden.read(path), path.parent.name
    source = without_a_class(tmp_path / "source", case)
    heads = OPEN.get((family, path.stem))
    if heads is None:
        report = convert(source, None, dry_run=True)
        assert report.head == case.head
        described = f"{family} without a head"
        if case.head != "none":
            described = f"{family} with head {case.head}"
        assert f"is {described}," in next(iter(report.lines()))
        return
    with pytest.raises(UsageError, match="choose one with --head") as refused:
        convert(source, None, dry_run=True)
    fit = re.search("the tensors fit (.+); choose", str(refused.value))
    assert fit and set(fit[1].split(" and ")) == heads
    assert convert(source, None, dry_run=True, head=case.head).head == case.head


@pytest.mark.parametrize(
    ("name", "head", "another"),
    [
        ("electra/replaced-token-detection", "sequence-classification", "head.dense.weight"),
        ("deberta/masked-lm", "replaced-token-detection", "head.norm.weight"),
    ],
)
def test_new_head_does_not_reuse_other_heads(
    tmp_path: Path, name: str, head: str, another: str
) -> None:
    case = Golden.read(GOLDEN / f"{name}.safetensors")
    convert(without_a_class(tmp_path / "source", case), tmp_path / "ours")
    ours = CheckpointDir(tmp_path / "ours", "ours")
    with pytest.raises(VerificationError, match="--init-head"):
        convert(ours, tmp_path / "new", head=head)
    report = convert(ours, tmp_path / "new", head=head, init_head=True)
    owner = name.partition("/")[2]
    reasons = {drop.reason for drop in report.mapping.drops.values()}
    assert reasons == {f"belongs to the head {owner}; {head} was requested"}
    assert another in {entry.target for entry in report.mapping.initialized}
    existing, new = (load_file(tmp_path / f"{side}/model.safetensors") for side in ("ours", "new"))
    assert (existing[another] != new[another]).any()
    assert (existing["embeddings.tokens.weight"] == new["embeddings.tokens.weight"]).all()

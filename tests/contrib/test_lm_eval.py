"""Models in lm-evaluation-harness, against the harness's own models of transformers.

What needs the harness is skipped where it is not installed.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.evaluation.conftest import causal
from tests.tasks.causal_lm.making import MakeSource, source
from tests.tasks.seq2seq.making import hub
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.contrib import lm_eval as contrib
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.exporting.session import open_session
from zoo.hub.source import CheckpointDir

__all__ = ["causal", "hub", "source"]
Causal = tuple[Model, Any, Any]
harness = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None,
    reason="lm-evaluation-harness is not installed: pip install 'lm-eval[hf]'",
)
PAIRS = [
    ("the cat", " sat on the mat."),
    ("the cat ", "sat"),
    ("", "a dog ran"),
    ("a dog ran to the " * 30, "mat."),
    ("the ca", "t sat on the mat."),
]
TEXTS = ["the cat sat on the mat.", "a", "the cat sat on a dog. " * 40]
UNTIL = {"until": [".", "\n"], "max_gen_toks": 12, "do_sample": False}


def requests(*arguments: Any) -> list[Any]:
    return [SimpleNamespace(args=args, task_name=None) for args in arguments]


def harness_reference(folder: Path) -> Any:
    from lm_eval.models.huggingface import HFLM

    return HFLM(str(folder), device="cpu", dtype="float32", batch_size=1)


def assert_same(model: Model, folder: Path) -> None:
    """Compare log-likelihoods of pairs and continuations with those of the harness's model."""
    reference = harness_reference(folder)
    ours = contrib.harness_model(model)
    expected = reference.loglikelihood(requests(*PAIRS), disable_tqdm=True)
    for (log_prob, greedy), (theirs, is_greedy) in zip(
        ours.loglikelihood(requests(*PAIRS)), expected, strict=True
    ):
        assert log_prob == pytest.approx(theirs, abs=1e-4)
        assert greedy == is_greedy
    contexts = requests(*((context, dict(UNTIL)) for context, _ in PAIRS if context))
    texts = reference.generate_until(contexts, disable_tqdm=True)
    for text, theirs in zip(ours.generate_until(contexts), texts, strict=True):
        assert text == theirs


@harness
def test_a_causal_model_has_the_results_of_the_harness(causal: Causal) -> None:
    model, _, _ = causal
    folder = model.checkpoint.path.parent / "hub"
    assert_same(model, folder)
    texts = requests(*((text,) for text in TEXTS))
    expected = harness_reference(folder).loglikelihood_rolling(texts, disable_tqdm=True)
    result = contrib.harness_model(model).loglikelihood_rolling(texts)
    assert result == pytest.approx(expected, abs=1e-3, rel=1e-5)


@harness
def test_an_encoder_decoder_is_refused(hub: Path, tmp_path: Path) -> None:
    convert(CheckpointDir(hub, "test"), tmp_path / "ours")
    checkpoint = load_checkpoint(tmp_path / "ours")
    with pytest.raises(UsageError, match="is not a causal model"):
        contrib.harness_model(Model(checkpoint, open_session(checkpoint, "cpu")))


@harness
def test_a_task_of_the_harness_runs(causal: Causal, tmp_path: Path) -> None:
    import lm_eval
    from lm_eval.tasks import TaskManager

    rows: list[dict[str, Any]] = [
        {"prompt": "the cat", "options": [" sat", " mat"], "answer": 0},
        {"prompt": "a dog ran to", "options": [" the", " cat"], "answer": 1},
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {
        "task": "loopback",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"validation": str(data)}},
        "output_type": "multiple_choice",
        "validation_split": "validation",
        "doc_to_text": "{{prompt}}",
        "doc_to_choice": "{{options}}",
        "doc_to_target": "answer",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    }
    (tmp_path / "loopback.yaml").write_text(json.dumps(task))
    contrib.register()
    contrib.register()
    model, _, _ = causal
    common: dict[str, Any] = {
        "tasks": ["loopback"],
        "task_manager": TaskManager(include_path=str(tmp_path), include_defaults=False),
        "bootstrap_iters": 0,
    }
    arguments = {"pretrained": str(model.checkpoint.path), "backend": "cpu"}
    result = lm_eval.simple_evaluate("zoo", model_args=arguments, **common)
    scores = model.score([(row["prompt"], option) for row in rows for option in row["options"]])
    best = [scores[2 * k]["log_prob"] < scores[2 * k + 1]["log_prob"] for k in range(len(rows))]
    accuracy = sum(b == row["answer"] for b, row in zip(best, rows, strict=True)) / len(rows)
    assert result["results"]["loopback"]["acc,none"] == accuracy


def test_texts_end_before_the_first_stop_sequence(source: MakeSource) -> None:
    assert contrib.cut("one. two\n", ["\n", ".", ""]) == "one"
    assert contrib.cut("one", []) == "one"


def test_options_of_the_harness_become_settings() -> None:
    settings = contrib.generation_settings
    assert settings({"until": "\n", "max_gen_toks": 5, "temperature": 0.0}) == {
        "until": ["\n"],
        "max_new_tokens": 5,
        "do_sample": False,
    }
    assert settings({"do_sample": True, "temperature": 0.5, "top_k": 3}) == {
        "do_sample": True,
        "until": [],
        "temperature": 0.5,
        "top_k": 3,
    }
    assert settings({"do_sample": False, "temperature": 0.5, "top_p": 0.9}) == {
        "until": [],
        "do_sample": False,
    }
    with pytest.raises(UsageError, match="the option typo of generate_until is not supported"):
        settings({"typo": 1})


def test_without_the_harness_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("lm_eval", "lm_eval.api", "lm_eval.api.model"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match="cannot be loaded"):
        contrib.harness_class.__wrapped__()

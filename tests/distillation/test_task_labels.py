"""Labels of tasks and objectives, as distillation losses read them.

Each test computes the loss of a task from the rows of logits and labels that a distillation loss
gets, with a function of torch, and compares it with the task's own loss.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.finetuning.making import HERE, settings, texts, write_table
from tests.objectives import detection
from tests.objectives.making import corpus, made, span_boundary
from tests.tasks.question_answering.making import questions_about_letters
from tests.tasks.sentence_embedding.making import wide
from zoo.data.rng import generator
from zoo.distillation.losses import BUILT_IN
from zoo.distillation.losses.base import LogitRows, LogitsLoss, ModelShape
from zoo.distillation.make_objective import build_losses
from zoo.distillation.outputs import ModelOutput
from zoo.errors import UsageError
from zoo.families.random_inputs import randomize_weights
from zoo.families.tasks import LabelType
from zoo.finetuning.config import finetune_config
from zoo.finetuning.setup import FineTuneSetup, finetune_setup
from zoo.nn.capture import Captured
from zoo.objectives.base import Outputs, TrainingObjective
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.objectives.masked import MASKED_LM
from zoo.objectives.replaced_token_detection import REPLACED_TOKEN
from zoo.objectives.span_boundary import SPAN_BOUNDARY
from zoo.overrides import override
from zoo.plugins import get_family
from zoo.training.build import prepare_run

Loss = Callable[[Tensor, Tensor], Tensor]
WORDS = {"yes": "a", "no": "j"}
SHAPE = ModelShape(layers=2, hidden_size=8, heads=2, classes=0, causal=False)


class Labelled(LogitsLoss):
    """A loss that reads labels."""

    name: ClassVar[str] = "labelled"
    label_types: ClassVar[tuple[LabelType, ...]] = get_args(LabelType)

    @override
    def distance(self, rows: LogitRows) -> Tensor:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def labelled_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILT_IN, "labelled", f"{__name__}:Labelled")


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    assert labels.dtype == torch.int64
    return F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)


def half_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of both ends of an answer, summed over windows."""
    return cross_entropy(logits, labels) / 2


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits.squeeze(-1), labels, reduction="sum")


def squared_error(logits: Tensor, labels: Tensor) -> Tensor:
    return F.mse_loss(logits.squeeze(-1), labels, reduction="sum")


def soft_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the divergence from probabilities, at the task's temperature of 2."""
    return F.kl_div(F.log_softmax(logits / 2, -1), labels, reduction="sum") * 4


def classes(path: Path) -> Path:
    rows = [{"text": t, "label": "yes" if t[0] <= "e" else "no"} for t in texts(40)]
    return write_table(path, rows)


def probabilities(path: Path) -> Path:
    rows = []
    for number, text in enumerate(texts(40)):
        probability = number / 40
        label = {"yes": probability, "no": 1 - probability}
        rows.append({"text": text, "label": label})
    return write_table(path, rows)


def grades(path: Path) -> Path:
    rows = []
    for number, text in enumerate(texts(40)):
        rows.append({"text": f"a {text}", "pair": text, "label": number % 2})
    return write_table(path, rows)


def lists(path: Path) -> Path:
    rows = []
    for text in texts(20):
        rows.append({"text": text, "pair": ["a", "b c", "d"], "label": [1, 0, 0.5]})
    return write_table(path, rows)


def pairs(path: Path) -> Path:
    rows = [{"text": t, "pair": t[::-1], "label": 0.5} for t in texts(40)]
    return write_table(path, rows)


def several(path: Path) -> Path:
    rows = []
    for number, text in enumerate(texts(40)):
        rows.append({"text": text, "label": ["even", "all"] if number % 2 == 0 else ["all"]})
    return write_table(path, rows)


def questions(path: Path) -> Path:
    return questions_about_letters(path)


PROMPT = {"template": "{text} b {label} c.", "label_words": WORDS}
PATTERNS = {**PROMPT, "template": [PROMPT["template"]]}
SCORES = {"data": {"pair": "pair", "label": "label"}}
RANKING = {"data": {"pair": "pair"}}
NUMBERS = {"data": {"pair": "pair"}}
TASKS: dict[str, tuple[str, Callable[[Path], Path], Mapping[str, Any], Loss]] = {
    "question-answering": (
        "question-answering",
        questions,
        {"max_seq_len": 24},
        half_cross_entropy,
    ),
    "regression": ("regression", pairs, NUMBERS, squared_error),
    "multi-label": ("multi-label", several, {}, binary_cross_entropy),
    "prompt": ("prompt", classes, {"task_args": PROMPT}, cross_entropy),
    "pet": ("pet", probabilities, {"task_args": PATTERNS}, soft_cross_entropy),
    "reranker": ("reranker", lists, RANKING, binary_cross_entropy),
    "reranker of grades": (
        "reranker",
        grades,
        {**RANKING, "task_args": {"loss": "cross-entropy"}},
        cross_entropy,
    ),
}


def setup_of(task: str, file: Path, changes: Mapping[str, Any]) -> FineTuneSetup:
    return finetune_setup(finetune_config(settings("bert", file, task=task, **changes), {}))


def assert_same_loss(
    objective: TrainingObjective, model: Any, batch: Any, term: str, loss: Loss
) -> None:
    """Check that rows of logits and labels belong together and have the objective's loss."""
    (built,) = build_losses(
        {"mine": {"kind": "labelled", "logits_of": term}}, objective, SHAPE, [SHAPE]
    )
    assert objective.label_type(term) in built.label_types
    outputs = objective.forward(model, batch)
    output = ModelOutput(model, objective, outputs, Captured(), batch)
    logits: Any = output.logits(term, everywhere=False)
    labels = output.labels(term)
    assert len(logits) == len(labels) > 3
    label_type = objective.label_type(term)
    assert labels.is_floating_point() == (label_type != "classes")
    assert labels.shape == (logits.shape if label_type == "probabilities" else logits.shape[:1])
    expected = objective.loss(outputs, batch).sums[term]
    torch.testing.assert_close(loss(logits, labels), expected, rtol=1e-6, atol=0, check_dtype=False)


@pytest.mark.parametrize("name", TASKS)
def test_tasks_have_a_label_for_each_row_of_logits(name: str, tmp_path: Path) -> None:
    task, write, changes, loss = TASKS[name]
    setup = setup_of(task, write(tmp_path / "t.jsonl"), changes)
    prepared = prepare_run(setup, tmp_path / "run", HERE)
    batch = prepared.train_dataloader.batches(0)[0]
    prepared.train_dataloader.close()
    model = prepared.loss_module.model.double().eval()
    randomize_weights(model)
    with torch.no_grad():
        assert_same_loss(setup.objective, model, wide(batch.tensors), setup.objective.name, loss)


def test_windows_without_an_answer_have_no_label(tmp_path: Path) -> None:
    """A tokenizer without a classification token has windows that are not learned from."""
    setup = setup_of("question-answering", questions(tmp_path / "q.jsonl"), {"max_seq_len": 24})
    batch = setup.objective.collate([setup.eval_rows.example(0, generator(0))] * 3)
    labels = batch.tensors["labels"]
    labels[1] = IGNORED
    output = ModelOutput(None, setup.objective, Outputs({}), Captured(), batch.tensors)
    assert output.labels("question-answering").tolist() == [*labels[0], *labels[2]]


@pytest.mark.parametrize("term", [MASKED_LM, SPAN_BOUNDARY])
def test_both_losses_of_span_boundaries_have_labels(term: str) -> None:
    family = get_family("bert")
    objective = span_boundary()
    model: Any = objective.model(family, objective.config).double().eval()
    randomize_weights(model)
    batch = objective.collate(made(objective, corpus())[:4])
    with torch.no_grad():
        assert_same_loss(objective, model, batch.tensors, term, cross_entropy)


@pytest.mark.parametrize("term", [MASKED_LM, REPLACED_TOKEN])
def test_generator_and_discriminator_have_labels(term: str) -> None:
    """The two logits of a token, 0 and the discriminator's, have the binary cross-entropy."""
    objective = detection.objective()
    batch = objective.collate(detection.drawn_rows(objective))
    with torch.no_grad():
        assert_same_loss(
            objective, detection.make_model(objective), batch.tensors, term, cross_entropy
        )


@pytest.mark.parametrize(
    ("task", "write", "changes"),
    [
        ("setfit", classes, {"task_args": {"num_iterations": 1}}),
        ("sentence-embedding", pairs, {**SCORES, "task_args": {"loss": "cosine"}}),
    ],
)
def test_embeddings_have_no_labels(
    task: str, write: Callable[[Path], Path], changes: Mapping[str, Any], tmp_path: Path
) -> None:
    objective = setup_of(task, write(tmp_path / "t.jsonl"), changes).objective
    message = f"terms.mine: the loss labelled reads labels, and {task} has no label for each row"
    with pytest.raises(UsageError, match=message) as error:
        build_losses({"mine": {"kind": "labelled"}}, objective, SHAPE, [SHAPE])
    assert error.value.hint == "--set distillation.terms.mine.weight=0 leaves it out"
    without_weight = {"mine": {"kind": "labelled", "weight": 0.0}}
    assert build_losses(without_weight, objective, SHAPE, [SHAPE]) == []


class OfClasses(Labelled):
    """A loss that reads classes."""

    name: ClassVar[str] = "of-classes"
    label_types: ClassVar[tuple[LabelType, ...]] = ("classes",)


@pytest.mark.parametrize(
    ("task", "write", "changes", "label_type"),
    [
        ("regression", pairs, NUMBERS, "numbers"),
        ("multi-label", several, {}, "probabilities"),
        ("reranker", lists, RANKING, "numbers"),
    ],
)
def test_labels_of_another_type_are_refused(
    task: str,
    write: Callable[[Path], Path],
    changes: Mapping[str, Any],
    label_type: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(BUILT_IN, "of-classes", f"{__name__}:OfClasses")
    objective = setup_of(task, write(tmp_path / "t.jsonl"), changes).objective
    message = f"loss of-classes reads labels that are classes, and those of {task} are {label_type}"
    with pytest.raises(UsageError, match=message) as error:
        build_losses({"mine": {"kind": "of-classes"}}, objective, SHAPE, [SHAPE])
    assert error.value.hint == "--set distillation.terms.mine.weight=0 leaves it out"


def test_labels_that_a_loss_does_not_declare_are_an_error() -> None:
    rows = LogitRows(torch.zeros(1, 2), [], 2)
    with pytest.raises(TypeError, match="declares them as label_types"):
        _ = rows.labels

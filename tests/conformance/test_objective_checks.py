"""No objective shows the model what it predicts, and mistakes by which one would are found."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as replace_struct

from tests.conformance.faults import Checks, Faults, FaultyBert
from tests.objectives.words import vocabulary
from zoo.conformance import objective_checks
from zoo.conformance.objective_checks import MIN_LABELS, require_enough, require_no_leak
from zoo.conformance.tiny_model import NotApplicable
from zoo.data.corpus import Split
from zoo.errors import VerificationError
from zoo.objectives import OBJECTIVES, masked, objective_type
from zoo.objectives.base import Example, Objective
from zoo.objectives.causal import CausalDataset
from zoo.objectives.prefix import PrefixLm
from zoo.objectives.seq2seq import Seq2SeqDataset
from zoo.plugins import get_family

ROLES = dict.fromkeys(("bos", "eos"), "</s>") | {"pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
WORDS = [f"word{number}" for number in range(120)]
VOCABULARY = vocabulary(WORDS, roles=ROLES)
FAMILIES = {
    "causal-lm": "gpt",
    "sequence-autoencoder": "gpt",
    "replaced-token-detection": "electra",
}
FAMILIES |= {name: "t5" for name, place in OBJECTIVES.items() if "denoising" in place}
FAMILIES |= {"prefix-lm": "t5", "bert-style": "t5"}
FAMILIES |= {name: "bart" for name, place in OBJECTIVES.items() if "infilling" in place}


def texts() -> Split:
    """Return four documents of sixty sentences of random words."""
    ids: Any = [VOCABULARY.tokenizer.token_to_id(word) for word in WORDS]
    return Split.from_documents(np.random.default_rng(0).choice(ids, size=(4, 60, 13)).tolist())


def objective(name: str) -> tuple[Any, Objective]:
    """Return a family and its objective of the size ``tiny``."""
    family = get_family(FAMILIES.get(name, "bert"))
    config = replace_struct(family.sizes()["tiny"], vocab_size=VOCABULARY.vocab_size)
    return family, objective_type(family, config, name)(VOCABULARY, config, 48)


@pytest.fixture(autouse=True)
def _few_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective_checks, "EXCHANGES", 48)


# Each takes its noise or its pairs of texts from an objective that stays, or from one part of it.
SIMILAR = (
    "masked-lm+next-sentence",
    "text-infilling",
    "sentence-permutation",
    "mask-tokens",
    "replace-spans",
    "drop-tokens",
    "deshuffling",
)


@pytest.mark.by_default("causal-lm", "masked-lm")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in SIMILAR else ())
        for name in [*OBJECTIVES, "bert-style"]
    ],
)
def test_sound_objectives_pass(name: str) -> None:
    family, sound = objective(name)
    labels = require_no_leak(family, sound, texts())
    if min(sound.visible_labels.get(term, 0.0) for term in sound.loss_weights) < 1:
        assert max(labels.values()) >= MIN_LABELS
    assert [term for term, count in labels.items() if 0 < count < MIN_LABELS] == []


def test_too_few_labels_are_no_result() -> None:
    """Three labels that are visible are a leak; three that are not say nothing."""
    measured = {"mine": {"masked-lm": 3, "next-sentence": 0}}
    with pytest.raises(NotApplicable, match="mine: 3 labels of masked-lm; at least 30 are needed"):
        require_enough(measured)
    require_enough({"mine": {"masked-lm": MIN_LABELS, "next-sentence": 0}})
    with pytest.raises(NotApplicable, match="no label of mine is a token"):
        require_enough({"mine": {"next-sentence": 0}})


def unchanged(ids: Any, *args: Any) -> Any:
    return ids.copy()


def predicts_the_token_itself(example: Example) -> Example:
    ids, (_, positions) = example.arrays["input_ids"], example.positions["label_positions"]
    return replace(example, values={"labels": ids[positions]})


def reads_what_it_predicts(example: Example) -> Example:
    read = example.arrays["decoder_input_ids"].copy()
    read[example.positions["label_positions"][1]] = example.values["labels"]
    return replace(example, arrays={**example.arrays, "decoder_input_ids": read})


def source_is_the_target(self: Any, texts: Any, rng: Any) -> Any:
    return [(text[len(text) // 2 :], text[len(text) // 2 :]) for text in texts]


def changed_examples(kind: type, change: Callable[[Example], Example]) -> tuple[Any, str, Any]:
    """Return what is replaced, so that the examples of a dataset are changed."""
    sound = kind.example  # type: ignore[attr-defined]
    return kind, "example", lambda self, index, rng: change(sound(self, index, rng))


@dataclass(frozen=True)
class Leak:
    """A mistake in an objective: what is replaced by what."""

    name: str
    term: str
    fault: tuple[Any, str, Any]


LEAKS = {
    "labels are not masked": Leak("masked-lm", "masked-lm", (masked, "apply_mask", unchanged)),
    "spans are not masked": Leak(
        "masked-lm+span-boundary", "masked-lm", (masked, "apply_mask", unchanged)
    ),
    "masks of the generator": Leak(
        "replaced-token-detection", "masked-lm", (masked, "apply_mask", unchanged)
    ),
    "labels are not shifted": Leak(
        "causal-lm", "causal-lm", changed_examples(CausalDataset, predicts_the_token_itself)
    ),
    "the decoder's inputs are not shifted": Leak(
        "span-corruption", "seq2seq-lm", changed_examples(Seq2SeqDataset, reads_what_it_predicts)
    ),
    "the source has the target": Leak(
        "prefix-lm", "seq2seq-lm", (PrefixLm, "source_target_pairs", source_is_the_target)
    ),
}


# They have the mistake of "labels are not masked", and its check.
SIMILAR_LEAKS = ("spans are not masked", "masks of the generator")


@pytest.mark.by_default("labels are not masked")
@pytest.mark.parametrize(
    "leak",
    [
        pytest.param(leak, id=name, marks=pytest.mark.long if name in SIMILAR_LEAKS else ())
        for name, leak in LEAKS.items()
    ],
)
def test_leaks_are_found(leak: Leak, monkeypatch: pytest.MonkeyPatch) -> None:
    family, faulty = objective(leak.name)
    monkeypatch.setattr(*leak.fault)
    with pytest.raises(VerificationError, match=f"predictions of {leak.term} depend on their own"):
        require_no_leak(family, faulty, texts())


@pytest.mark.long
def test_a_decoder_that_sees_the_next_token_fails() -> None:
    family, sound = objective("causal-lm")

    class Bidirectional(type(sound)):  # type: ignore[misc]
        def model(self, family: Any, config: Any) -> Any:
            model = super().model(family, config)
            encode = model.encode
            model.encode = lambda *args, **options: (
                encode(*args, **options) + encode(*args, **options).mean(1, keepdim=True)
            )
            return model

    faulty = Bidirectional(sound.vocabulary, sound.config, sound.length)
    with pytest.raises(VerificationError, match="predictions of causal-lm depend on their own"):
        require_no_leak(family, faulty, texts())


@pytest.mark.long
def test_a_recipe_whose_labels_are_not_masked_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    Checks(FaultyBert(), Faults()).check_label_leaks()
    monkeypatch.setattr(masked, "apply_mask", unchanged)
    with pytest.raises(VerificationError, match="predictions of masked-lm depend on their own"):
        Checks(FaultyBert(), Faults()).check_label_leaks()

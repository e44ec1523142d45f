"""Faults of an encoder-decoder that ``zoo plugins check --full`` finds, in the example plugin."""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.faults import Checks, Faults, Faulty
from zoo.conformance.kit import CHECKS, run_check
from zoo.errors import VerificationError
from zoo.nn.encoder_decoder import PostNormDecoderBlock
from zoo.nn.heads import VocabularyProjection
from zoo.nn.transformer import PostNormBlock
from zoo.weights import Rule, WeightMap

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugins" / "pegasus"
HEAD = "seq2seq-lm"
# checks of ``--full`` that these faults concern, and that train nothing
USED = ("reference_outputs", "decoder_start")


@pytest.fixture(scope="module")
def family() -> Iterator[Any]:
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(EXAMPLE)
    yield importlib.import_module("zoo_pegasus").Pegasus
    patch.undo()


def swapped(weights: WeightMap) -> WeightMap:
    """Exchange the Hub's names of queries and keys in cross-attention."""
    rename = {
        "encoder_attn.q_proj": "encoder_attn.k_proj",
        "encoder_attn.k_proj": "encoder_attn.q_proj",
    }

    def changed(name: str) -> str:
        old = next((part for part in rename if part in name), None)
        return name if old is None else name.replace(old, rename[old])

    def source(rule: Rule) -> str | tuple[str, ...]:
        return (
            changed(rule.source)
            if isinstance(rule.source, str)
            else tuple(map(changed, rule.source))
        )

    return replace(weights, rules=[replace(rule, source=source(rule)) for rule in weights.rules])


def embeddings(model: Any) -> list[Any]:
    return [model.embeddings, model.decoder.embeddings]


def one_position_late(model: Any) -> None:
    for module in embeddings(model):
        module.positions.weight = module.positions.weight.roll(1, 0)


def without_scale(model: Any) -> None:
    for module in embeddings(model):
        module.scale = 1.0


def post_norm(model: Any) -> None:
    for layer in model.layers:
        layer.__class__ = PostNormBlock
    for layer in model.decoder.layers:
        layer.__class__ = PostNormDecoderBlock


def without_bias(model: Any) -> None:
    if hasattr(model, "project"):
        model.project = lambda hidden: VocabularyProjection(hidden, model.output_embeddings)


def not_causal(model: Any) -> None:
    for layer in model.decoder.layers:
        layer.attention.causal = False


def other_start(model: Any) -> None:
    model.decoder_start_token_id = model.eos_token_id


MODELS: dict[str, Callable[[Any], None]] = {
    "positions off by one": one_position_late,
    "no scale of embeddings": without_scale,
    "norms after the sums": post_norm,
    "no bias of the logits": without_bias,
    "no causal mask": not_causal,
    "another start token": other_start,
}
FAULTS = {name: Faults(model=change) for name, change in MODELS.items()}
FAULTS["queries and keys swapped"] = Faults(weights=swapped)


def found(family: Any, faults: Faults) -> list[str]:
    """Return the checks that find something."""

    class FaultyPegasus(Faulty, family):  # type: ignore[misc]
        """The family with faults."""

    checks = Checks(FaultyPegasus(), faults)
    problems = []
    for name in USED:
        arguments: dict[str, Any] = {"head": HEAD}
        if name == "reference_outputs":
            arguments |= {"changes": {}, "lengths": None}
        try:
            run_check(checks, name, arguments)
        except VerificationError:
            problems.append(name)
    return problems


def test_a_sound_family_passes(family: Any) -> None:
    assert [name for name in USED if not CHECKS[name].slow or CHECKS[name].elsewhere] == []
    assert found(family, Faults()) == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str, family: Any) -> None:
    assert found(family, FAULTS[name]), name

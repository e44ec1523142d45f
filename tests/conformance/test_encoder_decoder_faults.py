"""Faults of an encoder-decoder that ``zoo plugins check --full`` finds."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace as replace_struct

from tests.conformance.faults import Faults, Faulty
from zoo.conformance import kit
from zoo.families.base import Family
from zoo.nn.encoder_decoder import PostNormDecoderBlock
from zoo.nn.heads import VocabularyProjection
from zoo.nn.transformer import PostNormBlock
from zoo.weights import Rule, WeightMap
from zoo_pegasus import Pegasus

# checks of ``--full`` that these faults concern; the others train, export or look elsewhere
USED = ("reference_outputs", "decoder_start")


@pytest.fixture
def family() -> type[Family]:
    return Pegasus


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


def one_layer(sizes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the smallest size with a layer in each stack: causes are tried in each layer."""
    return {"tiny": replace_struct(sizes["tiny"], num_layers=1, decoder_layers=1)}


HEAD = "seq2seq-lm"
OUTPUTS = f"reference outputs of pegasus with head {HEAD}: logits differs by .*"
START = f"decoder start of pegasus with head {HEAD}: decoder_input_ids begins with"
# name of a fault -> the fault, and a pattern of the line that names it
FAULTS: dict[str, tuple[Faults, str]] = {
    "queries and keys swapped": (
        Faults(weights=swapped),
        rf"{OUTPUTS}decoder.layers.0.cross.out .*query and key are exchanged: .*encoder_attn",
    ),
    "positions off by one": (Faults(model=one_position_late), f"{OUTPUTS}positions are off by 1"),
    "no scale of embeddings": (
        Faults(model=without_scale),
        f"{OUTPUTS}it computes with scale_embedding False",
    ),
    "norms after the sums": (
        Faults(model=post_norm),
        f"{OUTPUTS}layers.0.attention_norm .*are the norms in the same order",
    ),
    "no bias of the logits": (
        Faults(model=without_bias),
        f"{OUTPUTS}the first of these outputs that differs: logits; .*logits_bias has no effect",
    ),
    "no causal mask": (
        Faults(model=not_causal),
        f"{OUTPUTS}decoder.layers.0.attention.out .*reads later tokens: is the mask causal",
    ),
    "another start token": (Faults(model=other_start), START),
}


@pytest.fixture
def findings(family: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Faults], Iterator[str]]:
    """Return a function that yields the lines of ``zoo plugins check --full``."""
    monkeypatch.setattr(kit, "CHECKS", {name: kit.CHECKS[name] for name in (*USED, "golden_file")})

    def check(faults: Faults) -> Iterator[str]:
        class FaultyPegasus(Faulty, family):  # type: ignore[misc]
            """The family with faults, and the head that they concern."""

            named_heads: ClassVar = {HEAD: family.named_heads[HEAD]}

        faulty = FaultyPegasus()
        faulty.faults = replace(faults, sizes=one_layer)
        for finding in kit.check_family(faulty, full=True):
            yield finding.text

    return check


# The checks of every family of the project show that they pass a sound one.
@pytest.mark.long
def test_a_sound_family_passes(findings: Callable[[Faults], Iterator[str]]) -> None:
    (skipped,) = findings(Faults())
    assert skipped.startswith("golden file")


@pytest.mark.by_default("no causal mask")
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str, findings: Callable[[Faults], Iterator[str]]) -> None:
    faults, pattern = FAULTS[name]
    others = []
    for line in findings(faults):  # until it is named
        if re.match(pattern, line):
            return
        others.append(line)
    pytest.fail(f"only {others}")

"""Each conformance check fails on a family that is wrong in just the way that it looks for."""

import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

import zoo_bert.model
import zoo_bert.recipe
from tests.conformance import (
    test_declaration,
    test_golden,
    test_objective_checks,
    test_planted_mistakes,
)
from tests.conformance.faults import (
    Checks,
    DropoutConfig,
    Faults,
    FaultyBert,
    FaultyGpt,
    FaultyT5,
    after,
    constant,
    decoder_as_deep_as_encoder,
    divide_by_real_tokens,
    dropout_twice,
    fewer_positions,
    fills_masks,
    forget_positions,
    frozen_parameter,
    half_norm,
    ids_moved_by_one,
    ignore_mask,
    ignore_new_tokens,
    ignore_padding_of_prompts,
    keep_order_of_rows,
    large_weights,
    mask_last_by_default,
    more_dropout,
    no_dropout,
    no_packed_rows,
    pair_template,
    random_buffer,
    reversed_rows,
    rule,
    see_other_sources,
    silent_config,
    start_with_padding,
    stored_buffer,
    swallow_documents,
    unseeded_bias,
    unused_parameter,
    without,
    without_types,
    wrong_step,
)
from zoo.conformance import smoke_train
from zoo.conformance.family_checks import FamilyChecks
from zoo.conformance.kit import CHECKS
from zoo.errors import VerificationError
from zoo.families.base import Family
from zoo.families.encoder import encoder_heads
from zoo.families.recipe import Recipe
from zoo.weights import Ignore, TiedAlias
from zoo_bert import Bert


@dataclass(frozen=True)
class Case:
    """A check, a fault, and a part of the message of the check that fails.

    Attributes:
        check: name of the check.
        faults: the faults.
        message: part of the message.
        arguments: arguments of the check.
        family: the family that gets the faults.
        error: the error that is raised.
    """

    check: str
    faults: Faults
    message: str
    arguments: dict[str, Any] = field(default_factory=lambda: {"head": "none"})
    family: Callable[[], Family] = FaultyBert
    error: type[Exception] = VerificationError


TINY = {"size": "tiny"}
DEFAULT_ROWS: dict[str, Any] = {"changes": {}, "lengths": None}
WITHOUT_TYPES = {k: v for k, v in Bert.config_map.keys.items() if k != "type_vocab_size"}
NORM, WORDS = "layers.{i}.attention_norm.{p}", "bert.embeddings.word_embeddings.weight"
RENAMED = "bert.encoder.layer.{i}.attention.norm.{p}"
CASES = [
    Case(
        "declarations",
        Faults(attributes={"model_types": ()}),
        "the family declares no model_types",
        {},
    ),
    Case(
        "declarations",
        Faults(sizes=lambda sizes: {"base": sizes["base"]}),
        "there is no size tiny",
        {},
    ),
    Case(
        "declarations",
        Faults(attributes={"heads": dict}),
        "there is no head none",
        {},
    ),
    Case("declarations", Faults(sizes=silent_config), "tiny is not a BertConfig", {}),
    Case(
        "config_round_trip",
        Faults(written=lambda hub: {k: v for k, v in hub.items() if k != "hidden_size"}),
        "comes back as",
        TINY,
    ),
    Case(
        "config_round_trip",
        Faults(written=lambda hub: {**hub, "colour": "red"}),
        "keys are written and not read: .*colour",
        TINY,
    ),
    Case("invalid_sizes", Faults(sizes=silent_config), "the error does not name ", {}),
    Case(
        "rules_cover_parameters",
        Faults(weights=lambda weights: changed(weights, rules=weights.rules[:-1])),
        "rules and model differ in",
        {**TINY, "head": "none"},
    ),
    Case(
        "rules_cover_parameters",
        Faults(weights=rule(NORM, shape=(7,))),
        "rules and model differ in layers.0.attention_norm",
        {**TINY, "head": "none"},
    ),
    Case(
        "rules_cover_parameters",
        Faults(model=stored_buffer),
        "differ in sines; a buffer that follows from the configuration is a `Constant`",
        {**TINY, "head": "none"},
    ),
    *(
        Case("constants", Faults(weights=constant(**{field: value})), message)
        for field, value, message in [
            ("shape", (4,), r"bert.sines has shape \(3,\)"),
            ("values", lambda: np.ones(3), "bert.sines is float64"),
            ("values", lambda: np.full(3, np.nan, np.float32), "bert.sines is not finite"),
            ("values", lambda: np.random.random(3).astype("f4"), "changes from call to call"),
        ]
    ),
    Case(
        "rules_read_tensors_once",
        Faults(weights=constant(source=WORDS)),
        "read and left out",
    ),
    Case(
        "published_tensors",
        Faults(weights=rule(NORM, source=RENAMED)),
        "do not match the rules",
    ),
    Case(
        "published_tensors",
        Faults(weights=rule(NORM, shape=(7,))),
        "do not match the rules",
    ),
    Case(
        "published_tensors",
        Faults(attributes={"named_heads": encoder_heads("BERT")}),
        "bert has the class BERTModel, which transformers spells BertModel",
    ),
    Case(
        "published_tensors",
        Faults(attributes={"model_types": ("bert-like",)}),
        "bert has the model type bert-like, and BertModel of transformers has bert",
    ),
    Case(
        "reference_outputs",
        Faults(model=without_types),
        "logits differs by .* in torch.float64; the first module that differs: embeddings.norm",
        {"head": "masked-lm", **DEFAULT_ROWS},
    ),
    Case(
        "reference_defaults",
        Faults(attributes={"config_map": changed(Bert.config_map, keys=WITHOUT_TYPES)}),
        "unknown keys: type_vocab_size",
        {},
    ),
    Case(
        "reference_defaults",
        Faults(attributes={"config_type": DropoutConfig}),
        "dropout is 0.2 by default, and 0.1 in the reference",
        {},
    ),
    Case(
        "rules_read_tensors_once",
        Faults(weights=lambda weights: changed(weights, rules=[*weights.rules, weights.rules[0]])),
        "two rules read one tensor",
    ),
    Case(
        "rules_read_tensors_once",
        Faults(weights=lambda weights: weights.plus(drops=[Ignore(WORDS, "a buffer")])),
        "read and left out",
    ),
    Case(
        "rules_read_tensors_once",
        Faults(weights=lambda weights: weights.plus(ties=[TiedAlias("decoder", to="words")])),
        "no rule reads what a tie refers to",
    ),
    Case(
        "exported_names_are_read",  # the old and the new ending are exchanged
        Faults(weights=lambda w: changed(w, legacy={"LayerNorm.weight": "LayerNorm.gamma"})),
        "do not match the rules",
    ),
    Case("tensor_round_trip", Faults(weights=reversed_rows), "does not come back bit for bit"),
    Case("state_dict_round_trip", Faults(model=random_buffer), "differs after loading"),
    Case(
        "output_shapes",
        Faults(model=after(lambda tensor: tensor[:, :1])),
        "logits is not",
        {"head": "token-classification"},
    ),
    Case(
        "cached_decoding",
        Faults(model=forget_positions),
        "logits with a cache differ",
        {"head": "causal-lm"},
        FaultyGpt,
    ),
    *(
        Case("generation", Faults(model=fault), message, {"head": "causal-lm"}, FaultyGpt)
        for fault, message in [
            (wrong_step, "logits after 1 new tokens differ"),
            (ignore_new_tokens, "logits after 1 new tokens differ"),
            (keep_order_of_rows, "logits after 1 new tokens differ"),
            (ignore_padding_of_prompts, "logits after 0 new tokens differ"),
        ]
    ),
    *(
        Case(
            "generation",
            Faults(model=fault, attributes={"heads": fills_masks}),
            message,
            {"head": "causal-lm"},
            FaultyGpt,
        )
        for fault, message in [
            (wrong_step, "every token the same logits"),
            (ignore_new_tokens, "every token the same logits"),
            (ignore_padding_of_prompts, "logits after 0 new tokens differ"),
        ]
    ),
    Case(
        "generation",
        Faults(model=ignore_padding_of_prompts),
        "logits after 0 new tokens differ",
        {"head": "seq2seq-lm"},
        FaultyT5,
    ),
    Case("padding", Faults(model=ignore_mask), "of a row of 7 tokens", {"head": "masked-lm"}),
    Case("packed_rows", Faults(model=without("document_ids")), "documents of a packed row differ"),
    Case("packed_rows", Faults(model=swallow_documents), "documents of a packed row differ"),
    Case(
        "packed_rows",
        Faults(model=no_packed_rows),
        "packs rows of the head pretraining, and encode has no document_ids",
        {"head": "pretraining"},
    ),
    Case(
        "packed_rows",
        Faults(model=see_other_sources),
        "targets of a packed row differ",
        {"head": "seq2seq-lm"},
        FaultyT5,
    ),
    Case("longest_input", Faults(model=fewer_positions), "size of tensor", error=RuntimeError),
    Case(
        "longest_input",
        Faults(model=after(lambda tensor: tensor / (512 - tensor.shape[1]))),
        "is not finite for 512 tokens",
    ),
    Case("default_inputs", Faults(model=mask_last_by_default), "without the inputs differs"),
    Case(
        "row_of_padding",
        Faults(model=divide_by_real_tokens),
        "is not finite for a row of padding",
        {"head": "masked-lm"},
    ),
    Case(
        "dropout",
        Faults(model=after(lambda tensor: tensor + torch.rand(()))),
        "changes from run to run",
    ),
    Case("dropout", Faults(model=no_dropout), "in training equals that .* dropout 0.1"),
    Case("dropout_rates", Faults(model=dropout_twice), "of its variance to embeddings, and"),
    Case(
        "dropout_rates",
        Faults(model=dropout_twice, attributes={"has_reference": lambda config, head: False}),
        "embeddings.dropout.1 drops values that were dropped before",
    ),
    Case(
        "reference_initialization",
        Faults(model=half_norm),
        "embeddings.norm.weight begins with values other than 1",
    ),
    Case(
        "reference_initialization",
        Faults(model=large_weights),
        r"layers.0.ffn.up.weight begins with a standard deviation of 0\.(1|099)",
    ),
    *(
        Case(check, faults, message, {"head": "seq2seq-lm"}, FaultyT5)
        for check, faults, message in [
            ("decoder_start", Faults(model=start_with_padding), "decoder_input_ids begins with"),
            (
                "decoder_start",
                Faults(written=lambda hub: {**hub, "decoder_start_token_id": 8}),
                "starts with 7, and the reference's decoder with 8",
            ),
            (
                "unequal_sizes",
                Faults(model=decoder_as_deep_as_encoder),
                "with num_decoder_layers=3, rules and model differ in decoder.layers.2",
            ),
            (
                "unequal_sizes",
                Faults(written=lambda hub: {**hub, "num_decoder_layers": hub["num_layers"]}),
                "num_decoder_layers 3 is read as 2",
            ),
        ]
    ),
    *(
        Case("reference_tokenizer", Faults(attributes=attributes), message, {}, family)
        for attributes, message, family in [
            (pair_template("cls $A sep $B"), r"the pair \[.Alice.* has the input_ids", FaultyBert),
            (pair_template("cls $A sep $B:1"), "the pair .* has the input_ids", FaultyBert),
            (pair_template("cls $A sep $B sep"), "the pair .* has the token_type_ids", FaultyBert),
            (ids_moved_by_one(), "the eos token has the id 2, and 1 in the reference", FaultyT5),
        ]
    ),
    Case("bfloat16", Faults(model=after(lambda tensor: tensor.float())), "is torch.float32"),
    Case("gradients", Faults(model=unused_parameter), "unused has no gradient"),
    Case("gradients", Faults(model=frozen_parameter), "embeddings.norm.weight is frozen"),
    Case("initialization", Faults(seed=0), "do not depend on the seed"),
    Case("initialization", Faults(model=unseeded_bias), "ffn.up.bias differs for one seed"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.message}")
def test_a_fault_fails_its_check(case: Case, tmp_path: Path) -> None:
    def run(faults: Faults) -> None:
        check = getattr(Checks(case.family(), faults), f"check_{case.check}")
        files = {"directory": tmp_path}
        needed = inspect.signature(check).parameters.keys() & files.keys()
        check(**case.arguments, **{name: files[name] for name in needed})

    run(Faults())  # a sound family passes
    with pytest.raises(case.error, match=case.message):
        run(case.faults)


def test_dropout_of_classifiers_alone_may_change_the_outputs() -> None:
    """Without any dropout, a model that drops out is refused."""

    def sizes(**probabilities: float) -> Callable[[Any], Any]:
        return lambda sound: {name: replace(c, **probabilities) for name, c in sound.items()}

    none = {"dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.0}
    classifiers = Checks(FaultyBert(), Faults(sizes=sizes(**{**none, "classifier_dropout": 0.1})))
    for head in ("none", "token-classification"):
        classifiers.check_dropout(head)
    noisy = Checks(FaultyBert(), Faults(sizes=sizes(**none), model=more_dropout))
    with pytest.raises(VerificationError, match=r"in training differs from .* dropout 0,"):
        noisy.check_dropout("none")


@pytest.mark.long
def test_a_recipe_that_learns_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound: Recipe = zoo_bert.recipe.recipe("tiny")
    standstill = replace(sound, optimizer=replace(sound.optimizer, learning_rate=1e-12))
    monkeypatch.setattr(zoo_bert.recipe, "recipe", lambda size: standstill)
    with pytest.raises(VerificationError, match="the loss does not decrease"):
        Checks(FaultyBert(), Faults()).check_loss_decreases(tmp_path / "run")


def break_models(monkeypatch: pytest.MonkeyPatch, fault: Callable[[Any], None]) -> None:
    """Give all models of the installed family a fault."""
    build = zoo_bert.model.build

    def faulty(config: Any, head: str) -> Any:
        model = build(config, head)
        fault(model)
        return model

    monkeypatch.setattr(zoo_bert.model, "build", faulty)


def test_a_classifier_that_learns_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_models(monkeypatch, after(lambda logits: logits * 0))
    smoke = changed(smoke_train.SMOKE_TASKS["text-classification"], steps=10, batch_size=8)
    monkeypatch.setitem(smoke_train.SMOKE_TASKS, "text-classification", smoke)
    with pytest.raises(VerificationError, match="the loss does not decrease"):
        Checks(FaultyBert(), Faults()).check_fine_tuning(tmp_path / "run", "text-classification")


def count_steps(model: Any) -> None:
    """Scale the first output by a number that no checkpoint has."""
    steps = itertools.count(1)

    def scale(module: Any, args: Any, outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        name = next(iter(outputs))
        factor = 1 + 0.1 * next(steps) if module.training else 1
        return {**outputs, name: outputs[name] * factor}

    model.register_forward_hook(scale)


def test_a_model_with_a_state_outside_of_checkpoints_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_models(monkeypatch, count_steps)
    with pytest.raises(VerificationError, match=r"a resumed run differs in .*metrics\.jsonl"):
        Checks(FaultyBert(), Faults()).check_resume(tmp_path / "run")


@pytest.mark.long  # a run and an export; the gate itself has tests of its own
def test_a_graph_with_other_outputs_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout that is not switched off for inference is another in torch and in the graph."""
    noise = after(lambda tensor: torch.nn.functional.dropout(tensor, 0.5, training=True))
    break_models(monkeypatch, noise)
    monkeypatch.setitem(smoke_train.SETTINGS, "max_steps", 1)
    with pytest.raises(VerificationError, match="graph"):
        Checks(FaultyBert(), Faults()).check_export(tmp_path)


# checks with tests of their own
OTHERS: dict[str, Callable[..., None]] = {
    "imports": test_declaration.test_declaration,
    "golden_file": test_golden.test_order_of_heads_and_rotation,
    "ties": test_planted_mistakes.test_forgotten_ties_are_named,
    "objectives": test_planted_mistakes.test_a_mistake_is_named,
    "reference_ties": test_planted_mistakes.test_forgotten_ties_are_named,
    "reference_keys": test_planted_mistakes.test_a_mistake_is_named,
    "label_leaks": test_objective_checks.test_a_recipe_whose_labels_are_not_masked_fails,
    "loss_decreases": test_a_recipe_that_learns_nothing_fails,
    "fine_tuning": test_a_classifier_that_learns_nothing_fails,
    "resume": test_a_model_with_a_state_outside_of_checkpoints_fails,
    "export": test_a_graph_with_other_outputs_fails,
}


def test_every_check_has_a_fault() -> None:
    checks = {name.removeprefix("check_") for name in dir(FamilyChecks) if "check_" in name}
    assert checks == CHECKS.keys() == {case.check for case in CASES} | OTHERS.keys()

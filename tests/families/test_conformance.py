"""The conformance kit detects faults: each family here has one fault, and its check fails."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.families import test_bert
from zoo.errors import VerificationError
from zoo.weights import Rule, Transpose, WeightMap
from zoo_bert import Bert
from zoo_bert.config import BertConfig

Check = Callable[["Kit"], None]
GOLDEN = Path(__file__).parents[1] / "golden" / "bert" / "none.safetensors"


class Kit(test_bert.TestBert):
    __test__ = False

    def __init__(self, family: Bert) -> None:
        self.family = family  # type: ignore[misc]


class Rebuilt(Bert):
    """A family that changes its model after construction."""

    def model(self, config: BertConfig, head: str) -> nn.Module:
        model = super().model(config, head)
        self.spoil(model)
        return model

    def spoil(self, model: nn.Module) -> None:
        raise AssertionError("each fault says how")


class WithoutMask(Rebuilt):
    def spoil(self, model: nn.Module) -> None:
        forward = model.forward

        def unmasked(
            input_ids: Tensor,
            attention_mask: Tensor | None = None,
            token_type_ids: Tensor | None = None,
        ) -> dict[str, Tensor]:
            return forward(input_ids, None, token_type_ids)  # type: ignore[no-any-return]

        model.forward = unmasked


class WithoutTypes(Rebuilt):
    def spoil(self, model: nn.Module) -> None:
        embeddings = model.get_submodule("embeddings")
        forward = embeddings.forward
        embeddings.forward = lambda ids, types, positions=None: forward(ids, None, positions)


class WithDeadWeight(Rebuilt):
    def spoil(self, model: nn.Module) -> None:
        model.unused = nn.Linear(2, 2)


class WithoutDropout(Rebuilt):
    def spoil(self, model: nn.Module) -> None:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if hasattr(module, "dropout") and isinstance(module.dropout, float):
                setattr(module, "dropout", 0.0)  # noqa: B010 (mypy takes it for a module)


class WithUnseededWeights(Rebuilt):
    def spoil(self, model: nn.Module) -> None:
        bias = model.get_parameter("layers.0.ffn.up.bias")
        nn.init.normal_(bias, generator=torch.Generator().manual_seed(torch.seed() % 2**31))


class Reruled(Bert):
    """A family with changed weight rules."""

    def weights(self, config: BertConfig, head: str) -> WeightMap:
        weights = super().weights(config, head)
        return replace(weights, rules=[self.spoil_rule(rule) for rule in weights.rules])

    def spoil_rule(self, rule: Rule) -> Rule:
        raise AssertionError("each fault says how")


class WithSwappedQueryAndKey(Reruled):
    def spoil_rule(self, rule: Rule) -> Rule:
        if isinstance(rule.source, str):
            return rule
        query, key, value = rule.source
        return replace(rule, source=(key, query, value))


class WithWrongShape(Reruled):
    def spoil_rule(self, rule: Rule) -> Rule:
        return replace(rule, shape=(7, 7)) if rule.target == "layers.{i}.ffn.up.{p}" else rule


class WithOneTensorTwice(Reruled):
    def spoil_rule(self, rule: Rule) -> Rule:
        if rule.target != "layers.{i}.attention_norm.{p}":
            return rule
        return replace(rule, source="bert.encoder.layer.{i}.output.LayerNorm.{p}")


class WithRenamedTensor(Reruled):
    """The rules agree with themselves, and with no published file."""

    def spoil_rule(self, rule: Rule) -> Rule:
        if rule.target != "layers.{i}.attention_norm.{p}":
            return rule
        return replace(rule, source="bert.encoder.layer.{i}.attention.norm.{p}")


class Lossy(Transpose):
    def to_hf(self, array: Any) -> tuple[Any, ...]:
        return (array.T[::-1],)


class WithLossyOperation(Reruled):
    def spoil_rule(self, rule: Rule) -> Rule:
        return replace(rule, op=Lossy()) if rule.target == "embeddings.tokens.weight" else rule


class WithForgottenKey(Bert):
    config_map = replace(
        Bert.config_map, keys={k: v for k, v in Bert.config_map.keys.items() if k != "hidden_act"}
    )

    def sizes(self) -> dict[str, BertConfig]:
        return {"tiny": BertConfig(activation="relu")}


FAULTS: list[tuple[type[Bert], Check]] = [
    (WithoutMask, lambda kit: kit.check_padding("none")),
    (WithoutTypes, lambda kit: kit.check_golden_file(GOLDEN)),
    (WithDeadWeight, lambda kit: kit.check_gradients("masked-lm")),
    (WithDeadWeight, lambda kit: kit.check_rules_cover_parameters("tiny", "none")),
    (WithoutDropout, lambda kit: kit.check_dropout("none")),
    (WithUnseededWeights, lambda kit: kit.check_initialization("none")),
    (WithSwappedQueryAndKey, lambda kit: kit.check_golden_file(GOLDEN)),
    (WithWrongShape, lambda kit: kit.check_rules_cover_parameters("tiny", "none")),
    (WithOneTensorTwice, lambda kit: kit.check_rules_read_tensors_once("none")),
    (WithWrongShape, lambda kit: kit.check_published_tensors("none")),
    (WithRenamedTensor, lambda kit: kit.check_published_tensors("none")),
    (WithLossyOperation, lambda kit: kit.check_tensor_round_trip("none")),
    (WithForgottenKey, lambda kit: kit.check_config_round_trip("tiny")),
]


@pytest.mark.parametrize(("family", "check"), FAULTS, ids=lambda value: value.__name__)
def test_a_fault_is_found(family: type[Bert], check: Check) -> None:
    with pytest.raises(VerificationError):
        check(Kit(family()))
    check(Kit(Bert()))  # the family without the fault passes

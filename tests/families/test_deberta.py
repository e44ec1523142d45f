"""DeBERTa: the conformance kit, and equality with the reference library and released code."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.deberta import modeling_deberta
from transformers.models.deberta_v2 import modeling_deberta_v2

from tests.families.parity import (
    assert_equal,
    assert_equal_at_all_lengths,
    assert_there_and_back,
    count,
    published,
    random_model,
)
from tests.inference.making import make_checkpoint
from tests.tokenizers.directories import write
from tests.tokenizers.trained import BRACKETS, bracketed, byte_level
from zoo.checkpoint import load_checkpoint
from zoo.conformance.hf_reference import compare_with_reference, hub_state
from zoo.conformance.verify import verify
from zoo.errors import UsageError, VerificationError
from zoo.export.export import export_onnx
from zoo.families.random_inputs import random_inputs
from zoo.inference import open_session
from zoo.io.tensors.formats import TensorInfo
from zoo.nn.layers.relative import shift
from zoo.testing.conformance import FamilyTests
from zoo.tokenizers import SourceFiles
from zoo.weights import match_tensors
from zoo_deberta import Deberta, attention
from zoo_deberta.config import SIZES, DebertaConfig
from zoo_deberta.positions import bucket

DEBERTA = Deberta()
HEADS = list(DEBERTA.heads())
# heads that the reference library implements with equal formulas
SHARED_HEADS = [h for h in HEADS if h not in ("replaced-token-detection", "pretraining")]
FIRST = DebertaConfig(
    vocab_size=101,
    hidden_size=48,
    num_layers=3,
    num_heads=4,
    intermediate_size=80,
    max_positions=40,
    key_bias=False,
    relative_attention=True,
    position_terms="c2p|p2c",
    position_biased_input=False,
    enhanced_decoder=False,
)
THIRD = replace(
    FIRST, key_bias=True, position_buckets=8, share_att_key=True, norm_rel_ebd="layer_norm"
)
SECOND = replace(THIRD, conv_kernel_size=3, conv_activation="gelu")
# of the released files with masked-LM heads; the reference has no such parameters
POSITIONS = {"deberta.embeddings.position_embeddings.weight": (40, 48)}
DISCRIMINATOR = {
    "mask_predictions.LayerNorm.weight": (48,),
    "mask_predictions.LayerNorm.bias": (48,),
    "mask_predictions.dense.weight": (48, 48),
    "mask_predictions.dense.bias": (48,),
    "mask_predictions.classifier.weight": (1, 48),
    "mask_predictions.classifier.bias": (1,),
}
VERSIONS = {"first": FIRST, "second": SECOND, "third": THIRD}
CASES = [
    (version, head)
    for version in VERSIONS
    for head in SHARED_HEADS
    if (version, head) != ("first", "multiple-choice")  # the reference has no such class
]


@pytest.fixture(autouse=True)
def one_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reference compute roots and norms in the model's dtype instead of float32."""

    def norm(layer: Any, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], layer.weight, layer.bias, layer.variance_epsilon)

    def root(x: Tensor, factor: int) -> Tensor:
        return torch.tensor(x.shape[-1] * factor, dtype=torch.float64).sqrt()

    monkeypatch.setattr(modeling_deberta.DebertaLayerNorm, "forward", norm)
    monkeypatch.setattr(modeling_deberta, "scaled_size_sqrt", root)
    monkeypatch.setattr(modeling_deberta_v2, "scaled_size_sqrt", root)


class TestThird(FamilyTests):
    family = DEBERTA
    golden = Path(__file__).parents[1] / "golden" / "deberta"


class TestSecond(FamilyTests):
    family = DEBERTA
    test_rules_cover_parameters = None  # type: ignore[assignment]  # of every size: above
    test_fine_tuning = None  # type: ignore[assignment]  # of the size tiny: above
    test_golden_file = None  # type: ignore[assignment]  # of every version: above

    @property
    def config(self) -> DebertaConfig:
        return replace(SECOND, enhanced_decoder=True, conv_groups=2, type_vocab_size=3)


class TestFirst(FamilyTests):
    family = DEBERTA
    test_rules_cover_parameters = None  # type: ignore[assignment]  # of every size: above
    test_fine_tuning = None  # type: ignore[assignment]  # of the size tiny: above
    test_golden_file = None  # type: ignore[assignment]  # of every version: above

    @property
    def config(self) -> DebertaConfig:
        return replace(FIRST, enhanced_decoder=True, type_vocab_size=2)


# Parity with the reference library


@pytest.mark.parametrize(("version", "head"), CASES)
def test_each_version_equals_the_reference(version: str, head: str) -> None:
    assert_equal(DEBERTA, VERSIONS[version], head)


@pytest.mark.parametrize(
    "changes",
    [
        {"position_terms": ("p2c",)},
        {"position_terms": "c2p"},
        {"position_terms": None},
        {"relative_attention": False, "norm_rel_ebd": "none"},
        {"share_att_key": False},
        {"norm_rel_ebd": "none"},
        {"position_buckets": -1},
        {"position_buckets": -1, "max_relative_positions": 9},
        {"position_buckets": 6, "max_relative_positions": 16},
        {"position_biased_input": True, "type_vocab_size": 2},
        {"conv_kernel_size": 5, "conv_groups": 4, "conv_activation": "tanh"},
        {"legacy_names": True},
        {"layer_norm_eps": 0.1, "activation": "relu"},
        {"pooler_activation": "tanh", "labels": ("one",), "problem": "regression"},
    ],
    ids=str,
)
@pytest.mark.parametrize("head", ["masked-lm", "sequence-classification"])
def test_settings_equal_the_reference(changes: dict[str, Any], head: str) -> None:
    assert_equal(DEBERTA, replace(THIRD, **changes), head)


@pytest.mark.parametrize(
    "changes",
    [
        {"position_terms": ("p2c",)},
        {"relative_attention": False},
        {"max_relative_positions": 9},
        {"position_biased_input": True, "type_vocab_size": 2},
        {"legacy_names": True},
    ],
    ids=str,
)
def test_settings_of_the_first_version_equal_the_reference(changes: dict[str, Any]) -> None:
    assert_equal(DEBERTA, replace(FIRST, **changes), "masked-lm")


@pytest.mark.parametrize(
    ("size", "head"), [("base", "none"), *(("v3-base", head) for head in SHARED_HEADS)]
)
@pytest.mark.long
def test_base_equals_the_reference(size: str, head: str) -> None:
    config = replace(SIZES[size], enhanced_decoder=False)
    assert_equal_at_all_lengths(DEBERTA, config, head)


# the widest takes as long as the others together
@pytest.mark.parametrize(
    "size", ["large", pytest.param("v2-xlarge", marks=pytest.mark.long), "v3-xsmall"]
)
def test_other_widths_equal_the_reference(size: str) -> None:
    config = replace(SIZES[size], num_layers=2, vocab_size=200, enhanced_decoder=False)
    assert_equal(DEBERTA, config, "masked-lm")


# Positions


@pytest.mark.parametrize(("buckets", "farthest"), [(256, 512), (8, 40), (32, 64), (6, 16)])
def test_buckets_are_the_reference(buckets: int, farthest: int) -> None:
    differences = torch.arange(-2 * farthest, 2 * farthest)
    expected = (
        modeling_deberta_v2.make_log_bucket_position(differences, buckets, farthest).long().tolist()
    )
    assert [bucket(d, buckets, farthest) for d in differences.tolist()] == expected


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_shift_aligns_differences(tokens: int) -> None:
    differences = torch.arange(tokens - 1, -tokens - 1, -1).expand(2, tokens, -1).contiguous()
    place = torch.arange(tokens)
    shifted = shift(differences)
    assert torch.equal(shifted, (place[:, None] - place).expand(2, -1, -1))
    assert shifted.data_ptr() == differences[:, :, tokens - 1 :].data_ptr()  # a view, no copy


@pytest.mark.parametrize("group", [1, 700, 1500, 1 << 30])
@pytest.mark.parametrize("version", VERSIONS)
def test_cached_positions_and_groups_equal_the_reference(
    version: str, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "GROUP", group)
    model: Any = random_model(DEBERTA, VERSIONS[version], "masked-lm")
    names = list(model.state_dict())
    model.optimize_for_inference()
    assert list(model.state_dict()) == names
    for lengths in ((1,), (9, 7, 4), (40, 12)):
        inputs = random_inputs(DEBERTA.onnx(VERSIONS[version], "masked-lm"), FIRST, lengths)
        comparison = compare_with_reference(
            DEBERTA, VERSIONS[version], "masked-lm", model, inputs=inputs, tolerance=1e-9
        )
        assert comparison.first_diverging is None


def test_optimized_model_can_be_trained() -> None:
    model: Any = random_model(DEBERTA, THIRD, "none").requires_grad_(True)
    model.optimize_for_inference()
    inputs = random_inputs(DEBERTA.onnx(THIRD, "none"), THIRD, (9, 4))
    model(**inputs)["last_hidden_state"].square().sum().backward()
    assert model.relative.weight.grad.abs().sum() > 0
    with torch.no_grad():  # inference uses cached tensors, training does not
        stale = model(**inputs)["last_hidden_state"]
        model.relative.weight.mul_(-1)
        assert torch.equal(model(**inputs)["last_hidden_state"], stale)
        model.optimize_for_inference()
    before = model(**inputs)["last_hidden_state"].detach()
    with torch.no_grad():
        hidden = model(**inputs)["last_hidden_state"]
    assert (hidden - before).abs().max() <= 1e-9 < (hidden - stale).abs().max()


def test_optimized_model_can_be_traced() -> None:
    model: Any = random_model(DEBERTA, THIRD, "none")
    inputs = random_inputs(DEBERTA.onnx(THIRD, "none"), THIRD, (9, 4))
    with torch.no_grad():
        expected = model(**inputs)["last_hidden_state"]
        model.optimize_for_inference()
        traced = torch.export.export(model, (), inputs).module()
        hidden = traced(**inputs)["last_hidden_state"]
    assert (hidden - expected).abs().max() <= 1e-12


# The enhanced mask decoder and the replaced-token head, by the formulas of the released code


class Released:
    """Plain implementation of the released model, on tensors with the Hub's names."""

    def __init__(self, config: DebertaConfig, tensors: Mapping[str, Tensor]) -> None:
        self.config, self.tensors = config, tensors

    def linear(self, name: str, x: Tensor) -> Tensor:
        bias = self.tensors.get(f"{name}.bias")
        return F.linear(x, self.tensors[f"{name}.weight"], bias)

    def norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        x = x - x.mean(-1, keepdim=True)
        return weight * x / (x.pow(2).mean(-1, keepdim=True) + 1e-7).sqrt() + bias

    def split(self, x: Tensor) -> Tensor:  # (tokens, hidden) -> (heads, tokens, head_dim)
        return x.view(len(x), self.config.num_heads, -1).transpose(0, 1)

    def projections(self, name: str, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.config.key_bias:
            sources = {"query_proj": z, "key_proj": x, "value_proj": x}
            q, k, v = (self.split(self.linear(f"{name}.{p}", y)) for p, y in sources.items())
            return q, k, v
        joined = self.tensors[f"{name}.in_proj.weight"]
        by_head = joined.view(self.config.num_heads, 3, -1, joined.shape[-1])
        q, k, v = (
            torch.einsum("th,ndh->ntd", y, by_head[:, part]) for part, y in enumerate((z, x, x))
        )
        biases = (self.tensors[f"{name}.{p}_bias"].view(len(q), 1, -1) for p in "qv")
        return q + next(biases), k, v + next(biases)

    def table(self, name: str) -> tuple[Tensor, Tensor]:
        rows = self.tensors["deberta.encoder.rel_embeddings.weight"]
        if self.config.norms_positions:
            rows = self.norm("deberta.encoder.LayerNorm", rows)
        keys, queries = ("pos_key_proj", "pos_query_proj")
        if self.config.share_att_key:
            keys, queries = "key_proj", "query_proj"
        elif not self.config.key_bias:
            keys, queries = "pos_proj", "pos_q_proj"
        return tuple(self.split(self.linear(f"{name}.{p}", rows)) for p in (keys, queries))  # type: ignore[return-value]

    def block(self, number: int, x: Tensor, z: Tensor) -> Tensor:
        name = f"deberta.encoder.layer.{number}"
        q, k, v = self.projections(f"{name}.attention.self", z, x)
        keys, queries = self.table(f"{name}.attention.self")
        scores = torch.empty(len(q), len(x), len(x), dtype=x.dtype)
        reach = keys.shape[1] // 2
        for i in range(len(x)):
            for j in range(len(x)):
                far = i - j
                if self.config.position_buckets > 0:
                    far = bucket(far, self.config.position_buckets, self.config.max_positions)
                row = min(max(far + reach, 0), 2 * reach - 1)
                both = q[:, i] * k[:, j] + q[:, i] * keys[:, row] + k[:, j] * queries[:, row]
                scores[:, i, j] = both.sum(-1) / math.sqrt(3 * q.shape[-1])
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
        out = self.linear(f"{name}.attention.output.dense", mixed)
        y = self.norm(f"{name}.attention.output.LayerNorm", z + out)
        inner = F.gelu(self.linear(f"{name}.intermediate.dense", y))
        return self.norm(f"{name}.output.LayerNorm", y + self.linear(f"{name}.output.dense", inner))

    def convolved(self, x: Tensor, y: Tensor) -> Tensor:
        name = "deberta.encoder.conv"
        weight, bias = (self.tensors[f"{name}.conv.{p}"] for p in ("weight", "bias"))
        near = F.pad(x, (0, 0, 1, 1)).unfold(0, 3, 1)  # (tokens, hidden, 3)
        added = F.gelu(torch.einsum("tik,oik->to", near, weight) + bias)
        return self.norm(f"{name}.LayerNorm", y + added)

    def layers(self, ids: Tensor) -> list[Tensor]:
        x = self.tensors["deberta.embeddings.word_embeddings.weight"][ids]
        states = [self.norm("deberta.embeddings.LayerNorm", x)]
        for number in range(self.config.num_layers):
            y = self.block(number, states[-1], states[-1])
            first = number == 0 and self.config.conv_kernel_size > 0
            states.append(self.convolved(states[0], y) if first else y)
        return states

    def masked(self, ids: Tensor) -> Tensor:
        before = self.layers(ids)[-2]
        z = before + self.tensors["deberta.embeddings.position_embeddings.weight"][: len(ids)]
        for _ in range(2):
            z = self.block(self.config.num_layers - 1, before, z)
        name = "lm_predictions.lm_head"
        y = self.norm(f"{name}.LayerNorm", F.gelu(self.linear(f"{name}.dense", z)))
        table = self.tensors["deberta.embeddings.word_embeddings.weight"]
        return y @ table.T + self.tensors[f"{name}.bias"]

    def replaced(self, ids: Tensor) -> Tensor:
        x = self.layers(ids)[-1]
        y = self.norm("mask_predictions.LayerNorm", x[:1] + x)
        y = F.gelu(self.linear("mask_predictions.dense", y))
        return self.linear("mask_predictions.classifier", y).squeeze(-1)


@pytest.mark.parametrize("head", ["masked-lm", "pretraining", "replaced-token-detection"])
@pytest.mark.parametrize("version", VERSIONS)
def test_heads_of_the_released_code(version: str, head: str) -> None:
    config = replace(VERSIONS[version], enhanced_decoder=True, conv_groups=1)
    model = random_model(DEBERTA, config, head)
    released = Released(config, hub_state(DEBERTA.weights(config, head), model.state_dict()))
    inputs = random_inputs(DEBERTA.onnx(config, head), config, (21, 12))
    with torch.no_grad():
        outputs = model(**inputs)
    for row, length in enumerate((21, 12)):
        ids = inputs["input_ids"][row, :length]
        expected = {"logits": released.masked} if head != "replaced-token-detection" else {}
        expected["replaced_logits" if expected else "logits"] = released.replaced
        for name in outputs:
            assert (outputs[name][row, :length] - expected[name](ids)).abs().max() <= 1e-9


def test_the_decoder_is_not_the_last_block() -> None:
    with_table = replace(THIRD, enhanced_decoder=True)
    model = random_model(DEBERTA, with_table, "masked-lm")
    plain = random_model(DEBERTA, THIRD, "masked-lm")
    state = {n: t for n, t in model.state_dict().items() if not n.startswith("positions.")}
    plain.load_state_dict(state)
    inputs = random_inputs(DEBERTA.onnx(THIRD, "masked-lm"), THIRD, (9,))
    with torch.no_grad():
        assert (model(**inputs)["logits"] - plain(**inputs)["logits"]).abs().max() > 0.1


@pytest.mark.parametrize(
    ("head", "message"),
    [("masked-lm", "not run"), ("pretraining", "not run"), ("token-classification", "ok")],
)
def test_verify_compares_what_the_reference_computes(
    head: str, message: str, tmp_path: Path
) -> None:
    make_checkpoint(tmp_path / "model", head, family=DEBERTA)
    assert [check.outcome for check in verify(tmp_path / "model")][-1] == message


# Published weights


@pytest.mark.parametrize(("version", "head"), CASES)
def test_hub_round_trip(version: str, head: str, tmp_path: Path) -> None:
    assert_there_and_back(DEBERTA, VERSIONS[version], head, tmp_path)


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_table_of_the_decoder_is_kept(version: str, legacy: bool, tmp_path: Path) -> None:
    config = replace(VERSIONS[version], enhanced_decoder=True, legacy_names=legacy)
    assert_there_and_back(DEBERTA, config, "masked-lm", tmp_path, "bfloat16", POSITIONS)


def test_the_head_of_the_third_version_is_found(tmp_path: Path) -> None:
    config = replace(THIRD, enhanced_decoder=True)
    assert_there_and_back(
        DEBERTA, config, "pretraining", tmp_path, released=POSITIONS | DISCRIMINATOR
    )


@pytest.mark.parametrize("legacy_names", [True, False])
def test_both_names_of_the_masked_token_head_are_read(legacy_names: bool) -> None:
    present, other = (
        replace(THIRD, legacy_names=legacy) for legacy in (legacy_names, not legacy_names)
    )
    file = published(DEBERTA, other, "masked-lm")
    file["cls.predictions.decoder.weight"] = TensorInfo("F32", (101, 48))
    file["cls.predictions.decoder.bias"] = TensorInfo("F32", (101,))
    account = match_tensors(DEBERTA.weights(present, "masked-lm"), file)
    account.raise_if_incomplete("test")
    assert len(account.renamed) == 5 and len(account.ties) == 2


@pytest.mark.parametrize("head", ["none", "sequence-classification", "question-answering"])
def test_positions_without_a_decoder_are_ignored_with_a_reason(head: str) -> None:
    config = replace(THIRD, enhanced_decoder=True)
    table = {name: TensorInfo("F32", shape) for name, shape in POSITIONS.items()}
    account = match_tensors(DEBERTA.weights(config, head), published(DEBERTA, config, head) | table)
    account.raise_if_incomplete("test")
    assert [drop.reason for drop in account.drops.values()] == [
        "absolute positions, used by masked-LM heads alone"
    ]


def released_file(config: DebertaConfig, head: str) -> dict[str, TensorInfo]:
    """Return the tensors of a file with a head; the reference has none for the discriminator."""
    if head not in ("pretraining", "replaced-token-detection"):
        return published(DEBERTA, config, head)
    tensors = published(DEBERTA, config, "masked-lm")
    if head == "replaced-token-detection":
        tensors = {name: info for name, info in tensors.items() if name.startswith("deberta.")}
    return tensors | {name: TensorInfo("F32", shape) for name, shape in DISCRIMINATOR.items()}


@pytest.mark.parametrize("head", HEADS)
def test_embedding_differences_are_ignored_with_a_reason(head: str) -> None:
    """As in the files of deberta-v3-xsmall and mdeberta-v3-base."""
    config = replace(THIRD, enhanced_decoder=True)
    added = {
        "deberta.embeddings.word_embeddings._weight": TensorInfo("F16", (101, 48)),
        "deberta.embeddings.position_embeddings._weight": TensorInfo("F16", (40, 48)),
    }
    account = match_tensors(DEBERTA.weights(config, head), released_file(config, head) | added)
    account.raise_if_incomplete("test")
    assert {drop.reason for drop in account.drops.values()} == {
        "the difference to the generator's; the sum is stored"
    }


def test_the_file_decides_whether_there_is_a_decoder() -> None:
    config = replace(THIRD, enhanced_decoder=True)
    file = published(DEBERTA, config, "masked-lm")
    file |= {name: TensorInfo("F32", shape) for name, shape in POSITIONS.items()}
    weights = DEBERTA.weights(config, "masked-lm")
    assert match_tensors(weights, file).present == ("enhanced_decoder",)
    del file["deberta.embeddings.position_embeddings.weight"]
    account = match_tensors(weights, file)
    account.raise_if_incomplete("test")
    assert account.absent == ("enhanced_decoder",)


# Sizes


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("base", 138_601_728),
        ("large", 405_163_008),
        ("v3-xsmall", 70_682_112),
        ("v3-small", 141_304_320),
        ("v3-base", 183_831_552),
        ("v3-large", 434_012_160),
    ],
)
def test_parameter_counts_are_the_published_ones(size: str, expected: int) -> None:
    assert count(DEBERTA, SIZES[size], "none") == expected


# Configuration


@pytest.mark.parametrize("kind", ["DebertaConfig", "DebertaV2Config"])
def test_keys_of_the_reference_are_known(kind: str) -> None:
    reference = getattr(transformers, kind)()
    hub = json.loads(json.dumps(reference.to_dict()))
    translated = DEBERTA.from_hf(hub)
    assert translated.unknown == () and isinstance(translated.config, DebertaConfig)
    assert DEBERTA.model_type(translated.config) == reference.model_type
    back = DEBERTA.to_hf(translated.config, translated.extra)
    anew = {"architectures", "dtype", "problem_type"}
    assert {key: back[key] for key in hub.keys() - anew} == {k: hub[k] for k in hub.keys() - anew}


def test_defaults_are_those_of_the_version() -> None:
    first = DEBERTA.from_hf({"model_type": "deberta"}).config
    assert isinstance(first, DebertaConfig)
    assert (first.vocab_size, first.hidden_size, first.num_layers) == (50265, 768, 12)
    second = DEBERTA.from_hf({"model_type": "deberta-v2"}).config
    assert replace(DebertaConfig(), legacy_names=False) == second


def test_keys_of_published_files_are_known() -> None:
    hub = {
        "model_type": "deberta-v2",
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 1536,
        "initializer_range": 0.02,
        "intermediate_size": 6144,
        "max_position_embeddings": 512,
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "layer_norm_eps": 1e-7,
        "conv_kernel_size": 3,
        "conv_act": "gelu",
        "max_relative_positions": -1,
        "position_biased_input": False,
        "num_attention_heads": 24,
        "attention_head_size": 64,
        "num_hidden_layers": 24,
        "type_vocab_size": 0,
        "vocab_size": 128100,
        "padding_idx": 0,
        "pooler_hidden_size": 1536,
        "pooling": {"dropout": 0, "hidden_act": "gelu"},
    }
    translated = DEBERTA.from_hf(hub)
    assert translated.config == SIZES["v2-xlarge"] and translated.unknown == ()
    assert hub.items() <= DEBERTA.to_hf(translated.config, translated.extra).items()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("talking_head", True),
        ("z_steps", 2),
        ("pooling", {"dropout": 0, "hidden_act": "tanh"}),
        ("tie_word_embeddings", False),
        ("pooler_hidden_size", 64),
        ("attention_head_size", 32),
        ("embedding_size", 128),
        ("pos_att_type", "c2p|p2p"),
        ("pos_att_type", ["c2p", "c2p"]),
        ("norm_rel_ebd", "batch_norm"),
        ("conv_kernel_size", 4),
        ("hidden_act", "prelu"),
        ("is_decoder", True),
        ("quantization_config", {"bits": 8}),
    ],
)
def test_unimplemented_settings_are_refused_by_name(key: str, value: object) -> None:
    ours = {"pos_att_type": "position_terms", "norm_rel_ebd": "norm_rel_ebd"}.get(key, key)
    with pytest.raises(VerificationError, match=ours):
        DEBERTA.from_hf({"model_type": "deberta-v2", "relative_attention": True, key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [("share_att_key", True), ("position_buckets", 256), ("conv_kernel_size", 3)],
)
def test_first_version_refuses_later_settings(key: str, value: object) -> None:
    with pytest.raises(VerificationError, match=key):
        DEBERTA.from_hf({"model_type": "deberta", key: value})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"position_buckets": 2}, "position_buckets 2 do not divide 40"),
        ({"position_buckets": 80}, "position_buckets 80 do not divide 40"),
        ({"conv_groups": 5}, "conv_groups 5 do not divide hidden_size 48"),
        ({"relative_attention": False}, "norm_rel_ebd 'layer_norm' without relative_attention"),
        ({"key_bias": False}, "version 1"),
        ({"type_vocab_size": -1}, "type_vocab_size is -1"),
        ({"pooler_dropout": 1.0}, "pooler_dropout is 1.0"),
    ],
)
def test_invalid_configuration_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(THIRD, **changes)


def test_the_hub_has_no_choice_among_texts_in_the_first_version() -> None:
    assert DEBERTA.architecture(FIRST, "masked-lm") == "DebertaForMaskedLM"
    assert DEBERTA.architecture(THIRD, "multiple-choice") == "DebertaV2ForMultipleChoice"
    with pytest.raises(UsageError, match="multiple-choice"):
        DEBERTA.architecture(FIRST, "multiple-choice")


# Tokenizers


def test_the_first_version_has_a_byte_level_tokenizer(tmp_path: Path) -> None:
    vocabulary, merges = byte_level(BRACKETS)
    write(tmp_path, {"vocab.json": vocabulary, "merges.txt": merges})
    ours = DEBERTA.tokenizer(SourceFiles(tmp_path))
    reference = transformers.DebertaTokenizer.from_pretrained(tmp_path)
    for text in ("Some words, and others.", " a line\n£5", ""):
        assert ours.encode(text).ids == reference(text)["input_ids"]
    # the reference doubles the separator, unlike in pretraining
    assert ours.encode("one", "two").tokens.count("[SEP]") == 2


def test_later_versions_have_a_sentencepiece_tokenizer(tmp_path: Path) -> None:
    ours = DEBERTA.tokenizer(SourceFiles(write(tmp_path, {"spm.model": bracketed()})))
    reference = transformers.DebertaV2Tokenizer.from_pretrained(tmp_path)
    for texts in (("Some words, and a [MASK].",), ("One text", "and another one")):
        encoding, theirs = ours.encode(*texts), reference(*texts)
        assert encoding.ids == theirs["input_ids"]
        assert encoding.type_ids == theirs["token_type_ids"]


# Training and export


def test_dropouts_are_those_of_the_configuration() -> None:
    config = replace(THIRD, dropout=0.2, classifier_dropout=0.4, pooler_dropout=0.3)
    model = DEBERTA.model(config, "sequence-classification")
    rates = {"pooler": 0.3, "head": 0.4, "layers.0": 0.2, "embeddings": 0.2}
    for place, expected in rates.items():
        dropout = model.get_submodule(place).dropout
        assert isinstance(dropout, nn.Dropout) and dropout.p == expected, place
    assert model.get_submodule("layers.0.attention.position_dropout").p == 0.2


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("head", ["masked-lm", "multiple-choice"])
@pytest.mark.long
def test_a_graph_equals_torch_at_every_length(version: str, head: str, tmp_path: Path) -> None:
    names = ("key_bias", "position_buckets", "share_att_key", "norm_rel_ebd", "conv_kernel_size")
    fields = {name: getattr(VERSIONS[version], name) for name in names}
    layers = 2 if head == "masked-lm" else 1  # its decoder reads the last layer but one
    checkpoint = make_checkpoint(
        tmp_path / "model", head, family=DEBERTA, num_layers=layers, **fields
    )
    export_onnx(checkpoint, tmp_path / "graph")
    graph = open_session(load_checkpoint(tmp_path / "graph"))
    torch_session = open_session(checkpoint, "cpu")
    spec = DEBERTA.onnx(checkpoint.config, head)
    for lengths in ((1,), (40, 21), (3, 9, 30)):
        batch = {n: t.numpy() for n, t in random_inputs(spec, checkpoint.config, lengths).items()}
        expected, outputs = torch_session.run(batch), graph.run(batch)
        for name, array in expected.items():
            assert abs(array - outputs[name]).max() <= 1e-5 * abs(array).max(), (name, lengths)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_padding_does_not_overflow_in_half_precision(dtype: torch.dtype) -> None:
    model = random_model(DEBERTA, SECOND, "none")
    inputs = random_inputs(DEBERTA.onnx(SECOND, "none"), SECOND, (40, 1))
    with torch.no_grad():
        exact = model(**inputs)["last_hidden_state"]
        half = model.to(dtype)(**inputs)["last_hidden_state"]
    assert half.dtype is dtype and half.isfinite().all()
    real = inputs["attention_mask"].bool()
    assert (half.double() - exact)[real].abs().max() <= 0.1 * exact.abs().max()

"""DeBERTa's mask decoder and replaced-token head, by the formulas of the released code."""

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor
from torch.nn import functional as F

from tests.families.deberta.versions import DEBERTA, THIRD, VERSIONS
from tests.families.parity import random_model
from tests.inference.making import make_checkpoint
from zoo.conformance.hf_reference import hub_state
from zoo.conformance.verify import verify
from zoo.families.random_inputs import random_inputs
from zoo_deberta.config import DebertaConfig
from zoo_deberta.positions import bucket


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


@pytest.mark.by_default("first-pretraining", "third-pretraining")
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

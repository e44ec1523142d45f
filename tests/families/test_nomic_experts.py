"""Nomic's mixture of experts, next to the formulas of the released code in float64.

transformers has no class for it, and the released code needs MegaBlocks. The reference is a plain
loop over tokens, after ``modeling_hf_nomic_bert.py``.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from tests.checkpoints import VOCABULARY
from tests.families import parity
from tests.families.flash_formula import rotated
from tests.families.reference import SMALL_SIZES
from tests.warm import zoo
from zoo.api import load
from zoo.checkpoint import load_checkpoint
from zoo.conformance.hf_reference import hub_state
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir
from zoo_nomic import Nomic
from zoo_nomic.config import SIZES, NomicConfig

NOMIC = Nomic()
SMALL = NomicConfig(
    **SMALL_SIZES,
    model_type="nomic_bert_moe",
    type_vocab_size=1,
    activation="gelu",
    rope_theta=10_000.0,
    num_experts=5,
    pooler=False,
)
CHANGES: list[dict[str, Any]] = [
    {},
    {"num_experts": 3, "experts_per_token": 1},
    {"num_experts": 4, "experts_per_token": 4, "num_heads": 4},
    {"expert_interval": 1, "layer_norm_eps": 0.1},
    {"expert_interval": 3, "num_layers": 5, "rope_theta": 90.0},
]


def experts(config: NomicConfig, hub: Mapping[str, Tensor], mlp: str, token: Tensor) -> Tensor:
    """Return the output of a mixture for one token, (hidden,)."""
    scores = hub[f"{mlp}router.layer.weight"] @ token
    probabilities = scores.softmax(-1, dtype=torch.float32)
    best = probabilities.topk(config.experts_per_token)
    total = hub[f"{mlp}experts.bias"]
    shape = (config.num_experts, config.intermediate_size, config.hidden_size)
    w1 = hub[f"{mlp}experts.mlp.w1"].view(shape)
    w2 = hub[f"{mlp}experts.mlp.w2"].view(shape)
    for weight, number in zip(best.values, best.indices.tolist(), strict=True):
        total = total + weight.to(token.dtype) * (F.gelu(w1[number] @ token) @ w2[number])
    return total


def encode(config: NomicConfig, hub: Mapping[str, Tensor], ids: Tensor) -> Tensor:
    """Return the last hidden state of one text without padding, (tokens, hidden)."""

    def linear(module: str, x: Tensor) -> Tensor:
        return F.linear(x, hub[f"{module}.weight"], hub[f"{module}.bias"])

    def norm(module: str, x: Tensor) -> Tensor:
        weight, bias = hub[f"{module}.weight"], hub[f"{module}.bias"]
        return F.layer_norm(x, x.shape[-1:], weight, bias, config.layer_norm_eps)

    hidden = hub["embeddings.word_embeddings.weight"][ids]
    hidden = norm("emb_ln", hidden + hub["embeddings.token_type_embeddings.weight"][0])
    for number in range(config.num_layers):
        layer = f"encoder.layers.{number}."
        qkv = linear(f"{layer}attn.Wqkv", hidden)
        q, k, v = qkv.view(len(ids), 3, config.num_heads, -1).permute(1, 2, 0, 3)
        q = rotated(q, config.rope_theta)
        k = rotated(k, config.rope_theta)
        weights = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)
        context = (weights @ v).transpose(0, 1).flatten(1)
        hidden = norm(f"{layer}norm1", hidden + linear(f"{layer}attn.out_proj", context))
        mlp = f"{layer}mlp."
        if f"{mlp}router.layer.weight" in hub:
            rows = [experts(config, hub, mlp, token) for token in hidden]
            output = torch.stack(rows)
        else:
            output = linear(f"{mlp}fc2", F.gelu(linear(f"{mlp}fc1", hidden)))
        hidden = norm(f"{layer}norm2", hidden + output)
    return hidden


def hub_tensors(model: torch.nn.Module, config: NomicConfig) -> dict[str, Tensor]:
    tensors = {}
    for name, tensor in hub_state(NOMIC.weights(config, "none"), model.state_dict()).items():
        tensors[name.removeprefix("nomic_bert.")] = tensor.detach().clone().requires_grad_()
    return tensors


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_outputs_and_gradients_follow_the_released_formula(changes: dict[str, Any]) -> None:
    config = replace(SMALL, **changes)
    model = parity.random_model(NOMIC, config, "none")
    hub = hub_tensors(model, config)
    ids = torch.randint(1, config.vocab_size, (3, 9), generator=torch.Generator().manual_seed(1))
    lengths = [9, 4, 1]
    mask = (torch.arange(9) < torch.tensor(lengths)[:, None]).long()
    outputs = model(ids, mask)["last_hidden_state"]
    losses = []
    for row, length in enumerate(lengths):
        expected = encode(config, hub, ids[row, :length])
        ours = outputs[row, :length]
        assert (ours - expected).abs().max() <= 1e-9
        losses += [ours.square().mean(), expected.square().mean()]
    torch.autograd.backward(losses)
    for entry in NOMIC.weights(config, "none").entries():
        gradient = model.get_parameter(entry.target).grad
        (source,) = entry.sources
        expected_gradient = hub[source.removeprefix("nomic_bert.")].grad
        assert gradient is not None, entry.target
        assert expected_gradient is not None, source
        assert (gradient - expected_gradient).abs().max() <= 1e-9, entry.target
    single = model.float()(ids, mask)["last_hidden_state"]
    bound = 1e-5 * outputs.abs().max()
    assert (single - outputs)[mask.bool()].abs().max() <= bound


PUBLISHED: dict[str, Any] = {
    "activation_function": "gelu",
    "architectures": ["NomicBertModel"],
    "attn_pdrop": 0.0,
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
    "causal": False,
    "dense_seq_output": True,
    "embd_pdrop": 0.0,
    "expert_choice_router": False,
    "ffn_div": 1,
    "fused_bias_fc": True,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "mlp_fc1_bias": True,
    "mlp_fc2_bias": True,
    "model_type": "nomic_bert",
    "moe_every_n_layers": 2,
    "moe_impl": "megablocks",
    "moe_normalize_expert_weights": False,
    "moe_resid_pdrop": 0.0,
    "moe_top_k": 2,
    "n_embd": 768,
    "n_head": 12,
    "n_inner": 3072,
    "n_layer": 12,
    "n_positions": 2048,
    "num_experts": 8,
    "num_shared_experts": 0,
    "pad_token_id": 1,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": True,
    "resid_pdrop": 0.0,
    "rotary_emb_base": 10000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "router_aux_loss_coef": 0.1,
    "type_vocab_size": 1,
    "use_rms_norm": None,
    "vocab_size": 250048,
}


def test_a_published_configuration_is_read() -> None:
    translated = NOMIC.from_hub(PUBLISHED)
    assert translated.config == replace(SIZES["moe"], labels=translated.config.labels)
    assert translated.unknown == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("activation_function", "swiglu"),
        ("moe_normalize_expert_weights", True),
        ("num_shared_experts", 1),
        ("expert_choice_router", True),
        ("qkv_proj_bias", False),
        ("mlp_fc1_bias", False),
    ],
)
def test_what_is_not_computed_is_refused(key: str, value: Any) -> None:
    with pytest.raises(VerificationError, match=f"{key} = "):
        NOMIC.from_hub({**PUBLISHED, key: value})


def test_more_experts_a_token_than_there_are_is_refused() -> None:
    with pytest.raises(VerificationError, match="experts_per_token is 9, of 8 experts"):
        NOMIC.from_hub({**PUBLISHED, "moe_top_k": 9})


def convert_published(tmp_path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor], Path]:
    """Return a published configuration, the tensors of a small model, and its conversion."""
    config = replace(SMALL, vocab_size=len(VOCABULARY), max_positions=40, pad_token_id=0)
    model = parity.random_model(NOMIC, config, "none").float()
    tensors = {}
    for name, tensor in hub_tensors(model, config).items():
        tensors[name] = tensor.detach().contiguous()
    small = {
        "n_embd": config.hidden_size,
        "n_head": config.num_heads,
        "n_inner": config.intermediate_size,
        "n_layer": config.num_layers,
        "n_positions": 40,
        "num_experts": config.num_experts,
        "layer_norm_epsilon": config.layer_norm_eps,
        "pad_token_id": 0,
        "vocab_size": len(VOCABULARY),
    }
    hub = {**PUBLISHED, **small}
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(hub))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    convert(CheckpointDir(folder, "hub"), tmp_path / "ours")
    return hub, tensors, tmp_path / "ours"


def test_published_files_are_converted_both_ways(tmp_path: Path) -> None:
    hub, tensors, _ = convert_published(tmp_path)
    assert load_checkpoint(tmp_path / "ours").manifest.round_trip == "exact"
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    written = load_file(tmp_path / "back" / "model.safetensors")
    assert written.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(written[name], tensor), name
    after = json.loads((tmp_path / "back" / "config.json").read_text())
    assert {key: after[key] for key in hub} == hub


@pytest.mark.long
def test_a_mixture_of_experts_is_exported(tmp_path: Path) -> None:
    _, _, ours = convert_published(tmp_path)
    result = zoo("export", ours, "--onnx", "-o", tmp_path / "graph")
    assert result.returncode == 0, result.stderr
    texts = ["a b c", "j", "d e f g h i j a"]
    vectors = load(str(tmp_path / "graph")).embed(texts)
    expected = load(str(ours), backend="cpu").embed(texts)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)

"""Nomic's encoder: the conformance kit, and equality with the reference library."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.conformance.hf_reference import reference_model
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir
from zoo.testing.conformance import FamilyTests
from zoo_nomic import Nomic
from zoo_nomic.config import SIZES, NomicConfig

NOMIC = Nomic()
SMALL = NomicConfig(**SMALL_SIZES, pooler=False)  # as the class of transformers by default


class TestNomic(ReferenceTests, FamilyTests):
    family = NOMIC
    golden = Path(__file__).parents[1] / "golden" / "nomic"
    base = replace(SIZES["base"], vocab_size=1000, max_positions=512)
    others = ("tiny",)
    small = SMALL
    settings = (
        {"activation": "gelu"},
        {"pooler": True},
        {"layer_norm_eps": 0.1},
        {"rope_theta": 50.0},
        {"num_heads": 2, "type_vocab_size": 3},
        {"labels": ("one",), "problem": "regression"},
    )
    default = NomicConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("num_experts", 8): "num_experts",
        ("moe_every_n_layers", 2): "moe_every_n_layers",
        ("activation_function", "gelu"): "activation_function",
        ("prenorm", True): "prenorm",
        ("parallel_block", True): "parallel_block",
        ("qkv_proj_bias", True): "qkv_proj_bias",
        ("mlp_fc1_bias", True): "mlp_fc1_bias",
        ("rotary_emb_fraction", 0.5): "rotary_emb_fraction",
        ("rotary_emb_interleaved", True): "rotary_emb_interleaved",
        ("rotary_emb_scale_base", 512): "rotary_emb_scale_base",
        ("use_rms_norm", True): "use_rms_norm",
        ("causal", True): "causal",
        ("rope_parameters.rope_type", "yarn"): "rope_type",
        ("head_dim", 7): "head_dim = 7 contradicts",
    }
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("base", "none"): 137_322_240,  # with a pooler of 590,592, which published files lack
    }
    variants = ({"rope_theta": 50.0},)
    carried: ClassVar[dict[str, Any]] = {"use_flash_attn": True}


# config.json of nomic-embed-text-v1.5
PUBLISHED: dict[str, Any] = {
    "activation_function": "swiglu",
    "architectures": ["NomicBertModel"],
    "attn_pdrop": 0.0,
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
    "bos_token_id": None,
    "causal": False,
    "dense_seq_output": True,
    "embd_pdrop": 0.0,
    "eos_token_id": None,
    "fused_bias_fc": True,
    "fused_dropout_add_ln": True,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "model_type": "nomic_bert",
    "n_embd": 768,
    "n_head": 12,
    "n_inner": 3072,
    "n_layer": 12,
    "n_positions": 8192,
    "pad_vocab_size_multiple": 64,
    "parallel_block": False,
    "parallel_block_tied_norm": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "reorder_and_upcast_attn": False,
    "resid_pdrop": 0.0,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "summary_activation": None,
    "summary_first_dropout": 0.0,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "torch_dtype": "float32",
    "transformers_version": "4.34.0",
    "type_vocab_size": 2,
    "use_cache": True,
    "use_flash_attn": True,
    "use_rms_norm": False,
    "use_xentropy": True,
    "vocab_size": 30528,
}


def test_a_published_configuration_is_read() -> None:
    translated = NOMIC.from_hub(PUBLISHED)
    assert translated.config == replace(SIZES["base"], labels=translated.config.labels)
    assert translated.unknown == ()


def test_a_mixture_of_experts_with_gates_is_refused() -> None:
    experts = {"num_experts": 8, "moe_every_n_layers": 2, "moe_top_k": 2, "qkv_proj_bias": True}
    with pytest.raises(VerificationError, match="activation_function = 'swiglu'"):
        NOMIC.from_hub({**PUBLISHED, **experts})


@pytest.mark.parametrize(("factor", "longest"), [(None, 8192), (2.0, 2048)])
def test_rows_end_where_scaling_would_depend_on_the_batch(
    factor: float | None, longest: int
) -> None:
    config = NOMIC.from_hub({**PUBLISHED, "rotary_scaling_factor": factor}).config
    assert NOMIC.onnx(config, "none").limits == {"tokens": longest}


def test_a_file_keeps_the_keys_of_the_published_code(tmp_path: Path) -> None:
    """Its tensors have the names that transformers writes, without the prefix of a model."""
    small = {"n_embd": 48, "n_head": 4, "n_inner": 80, "n_layer": 2, "vocab_size": 64}
    keys = {**PUBLISHED, **small}
    config = NOMIC.from_hub(keys).config
    source = tmp_path / "source"
    parity.save_reference(NOMIC, replace(config, pooler=False), "none", source)
    (source / "config.json").write_text(json.dumps(keys))
    convert(CheckpointDir(source, "source"), tmp_path / "ours")
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    of_versions = ("transformers_version", "torch_dtype")
    same = {name: written.get(name) for name in keys if name not in of_versions}
    assert same == {name: value for name, value in keys.items() if name in same}
    before = load_file(source / "model.safetensors")
    after = load_file(tmp_path / "back" / "model.safetensors")
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []


def test_gradients_equal_the_reference() -> None:
    model = parity.random_model(NOMIC, SMALL, "masked-lm")
    reference: Any = reference_model(NOMIC, SMALL, "masked-lm", model.state_dict())
    ids = torch.arange(20).reshape(2, 10) + 5
    model(ids)["logits"].square().mean().backward()
    reference.requires_grad_(True)
    reference(ids).logits.square().mean().backward()
    ours = model.get_parameter("layers.0.ffn.up.weight").grad
    layer = reference.nomic_bert.layers[0].mlp
    theirs = torch.cat((layer.gate_proj.weight.grad, layer.up_proj.weight.grad))
    assert ours is not None
    assert (ours - theirs).abs().max() <= 1e-9

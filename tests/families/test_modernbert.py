"""ModernBERT: the conformance kit, and equality with the reference library on random weights."""

import json
import random
import re
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.checkpoint import load_checkpoint
from zoo.conformance.hf_reference import reference_model
from zoo.conversion.convert import convert
from zoo.errors import UsageError, VerificationError
from zoo.families.random_inputs import random_inputs
from zoo.hub.source import CheckpointDir
from zoo.testing.conformance import FamilyTests
from zoo_modernbert import ModernBert
from zoo_modernbert.config import SIZES, ModernBertConfig

MODERNBERT = ModernBert()
# an odd reach of local attention, and every second layer global
LOCAL: dict[str, Any] = {"local_attention": 10, "global_attn_every_n_layers": 2, "pad_token_id": 3}
SMALL = ModernBertConfig(**SMALL_SIZES, **LOCAL)


class TestModernBert(ReferenceTests, FamilyTests):
    family = MODERNBERT
    golden = Path(__file__).parents[1] / "golden" / "modernbert"
    row_lengths, packed_lengths = (40, 25, 2), (25, 14)  # longer than the window
    base = replace(SIZES["base"], vocab_size=1000, pad_token_id=3)
    others = ("tiny", "ettin-17m", "large")
    small = SMALL
    settings = (
        {"tie_embeddings": False},
        {"classifier_pooling": "mean"},
        {"pad_token_id": None},
        {"activation": "relu"},
        {"classifier_activation": "silu"},
        {"layer_norm_eps": 0.1},
        {"global_attn_every_n_layers": 1},
        {"global_rope_theta": 500.0, "local_rope_theta": 90.0},
        {"labels": ("one",), "problem": "regression"},
    )
    default = ModernBertConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("attention_bias", True): "attention_bias",
        ("mlp_bias", True): "mlp_bias",
        ("norm_bias", True): "norm_bias",
        ("classifier_bias", True): "classifier_bias",
        ("decoder_bias", False): "decoder_bias",
        ("is_decoder", True): "is_decoder",
        ("rope_parameters.full_attention.rope_type", "yarn"): "rope_type",
        ("classifier_pooling", "max"): "classifier_pooling",
    }
    # Warner et al. 2024, table 4; Weller et al. 2025, whose models are named after their number
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("base", "none"): 149_014_272,
        ("base", "masked-lm"): 149_655_232,
        ("large", "none"): 394_781_696,
        ("ettin-17m", "none"): 16_797_440,
        ("ettin-32m", "none"): 31_883_136,
        ("ettin-68m", "none"): 68_144_640,
        ("ettin-1b", "none"): 1_028_050_688,
    }
    variants = ({}, {"tie_embeddings": False}, {"classifier_pooling": "mean"})
    carried: ClassVar[dict[str, Any]] = {"deterministic_flash_attn": True, "cls_token_id": 7}


@pytest.mark.parametrize(
    "lengths", [(1024, 300), pytest.param((8192, 700), marks=pytest.mark.long)]
)
def test_padded_rows_up_to_the_longest_equal_the_reference(lengths: tuple[int, int]) -> None:
    """In local attention of the published width; float64 takes longer."""
    config = replace(
        SMALL,
        num_layers=2,
        hidden_size=8,
        num_heads=1,
        max_positions=lengths[0],
        local_attention=128,
    )
    inputs = random_inputs(MODERNBERT.onnx(config, "none"), config, lengths)
    real = inputs["attention_mask"].bool()
    model = parity.random_model(MODERNBERT, config, "none")
    reference: Any = reference_model(MODERNBERT, config, "none", model.state_dict())
    with torch.no_grad():
        ours = model.float().eval()(**inputs)["last_hidden_state"][real]
        expected = reference.float().eval()(**inputs).last_hidden_state[real]
    assert (ours - expected).abs().max() <= 1e-5 * expected.abs().max()


# config.json of answerdotai/ModernBERT-base, with the names of an earlier release of transformers
PUBLISHED: dict[str, Any] = {
    "architectures": ["ModernBertForMaskedLM"],
    **dict.fromkeys(("attention_bias", "classifier_bias", "mlp_bias", "norm_bias"), False),
    **dict.fromkeys(("attention_dropout", "classifier_dropout"), 0.0),
    **dict.fromkeys(("embedding_dropout", "mlp_dropout"), 0.0),
    **dict.fromkeys(("bos_token_id", "cls_token_id"), 50281),
    **dict.fromkeys(("eos_token_id", "sep_token_id"), 50282),
    **dict.fromkeys(("layer_norm_eps", "norm_eps"), 1e-5),
    **dict.fromkeys(("repad_logits_with_grad", "sparse_prediction"), False),
    "classifier_activation": "gelu",
    "classifier_pooling": "mean",
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "gradient_checkpointing": False,
    "hidden_activation": "gelu",
    "hidden_size": 768,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 1152,
    "local_attention": 128,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "model_type": "modernbert",
    "num_attention_heads": 12,
    "num_hidden_layers": 22,
    "pad_token_id": 50283,
    "position_embedding_type": "absolute",
    "sparse_pred_ignore_index": -100,
    "torch_dtype": "float32",
    "transformers_version": "4.47.0.dev0",
    "vocab_size": 50368,
}


def test_a_published_configuration_is_read() -> None:
    translated = MODERNBERT.from_hub(PUBLISHED)
    assert translated.config == replace(SIZES["base"], labels=translated.config.labels)
    assert translated.unknown == ()
    assert MODERNBERT.from_hub({**PUBLISHED, "local_atention": 64}).unknown == ("local_atention",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"local_attention": 0}, "local_attention = 0 is not positive"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers = 0 is not positive"),
        ({"hidden_size": 770}, "hidden_size 770 does not split into num_heads 12"),
        ({"num_hidden_layers": None}, "num_hidden_layers = None: Expected `int`"),
        ({"pad_token_id": 50368}, "pad_token_id 50368 is outside the vocabulary"),
        ({"sliding_window": 5}, "sliding_window = 5 contradicts the other keys"),
        ({"rope_theta": 5.0}, "rope_theta = 5.0 is not implemented"),
    ],
)
def test_wrong_values_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        MODERNBERT.from_hub({**PUBLISHED, **changes})


def test_other_patterns_of_local_attention_are_refused() -> None:
    with pytest.raises(VerificationError, match="layer_types"):
        MODERNBERT.from_hub({"layer_types": ["full_attention"] * 22})


def test_frequencies_contradict_each_other() -> None:
    later = {"full_attention": {"rope_theta": 7.0, "rope_type": "default"}}
    with pytest.raises(VerificationError, match="contradicts"):
        MODERNBERT.from_hub({"global_rope_theta": 9.0, "rope_parameters": later})


# Checkpoints of Composer

ZERO = torch.zeros(1)
FLEX: dict[str, Any] = {
    "model_type": "bert",  # of the class that FlexBERT's configuration derives from
    "attention_layer": "rope",
    "bert_layer": "prenorm",
    "embedding_layer": "sans_pos",
    "mlp_layer": "glu",
    "normalization": "layernorm",
    "norm_kwargs": {"eps": 1e-5, "bias": False},
    **dict.fromkeys(("embed_norm", "final_norm", "skip_first_prenorm", "decoder_bias"), True),
    **dict.fromkeys(("attn_qkv_bias", "attn_out_bias", "mlp_in_bias", "mlp_out_bias"), False),
    "rotary_emb_dim": None,
    "rotary_emb_base": 160_000.0,
    "local_attn_rotary_emb_base": 10_000.0,
    "rotary_emb_scale_base": None,
    "rotary_emb_interleaved": False,
    "hidden_act": "gelu",
    "head_pred_act": "gelu",
    "attention_probs_dropout_prob": 0.0,
    "attn_out_dropout_prob": 0.1,
    "embed_dropout_prob": 0.0,
    "mlp_dropout_prob": 0.0,
    "unpad_embeddings": True,
    "padding": "unpadded",
}


def composer_checkpoint(folder: Path, head: str, config: ModernBertConfig, **changes: Any) -> Path:
    """Write what Composer exports: its names and configuration, weights in a ``.bin`` file."""
    parity.save_reference(MODERNBERT, config, head, folder / "hub", "float32")
    tensors = load_file(folder / "hub" / "model.safetensors")
    named = {
        re.sub(r"^model\.", "bert.", name).replace("bert.layers.", "bert.encoder.layers."): tensor
        for name, tensor in tensors.items()
    }
    assert "bert.encoder.layers.1.attn_norm.weight" in named
    if head == "masked-lm":  # tied weights are stored twice
        named["decoder.weight"] = named["bert.embeddings.tok_embeddings.weight"].clone()
    keys = {
        "architectures": [f"FlexBert{MODERNBERT.architecture(config, head)[10:]}"],
        **FLEX,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "sliding_window": config.local_attention,
        "global_attn_every_n_layers": config.global_attn_every_n_layers,
        "pad_token_id": config.pad_token_id,
        "id2label": {str(number): label for number, label in enumerate(config.labels)},
        **changes,
    }
    (folder / "composer").mkdir()
    (folder / "composer" / "config.json").write_text(json.dumps(keys))
    torch.save(named, folder / "composer" / "pytorch_model.bin")
    return folder / "composer"


@pytest.mark.parametrize("head", ["masked-lm", "sequence-classification"])
def test_a_checkpoint_of_composer_is_read(head: str, tmp_path: Path) -> None:
    """It has the tensors of the Hub's layout, to which it is converted."""
    config = replace(SMALL, max_positions=8192, labels=("one", "two"), global_rope_theta=160_000.0)
    source = composer_checkpoint(tmp_path, head, parity.suited(config, head))
    for path, name in ((source, "ours"), (tmp_path / "hub", "reference")):
        result = convert(CheckpointDir(path, name), tmp_path / name, allow_pickle=True)
        assert result.head == head
    ours, reference = (
        load_file(tmp_path / name / "model.safetensors") for name in ("ours", "reference")
    )
    assert ours.keys() == reference.keys()
    assert [name for name in ours if not torch.equal(ours[name], reference[name])] == []
    configs = [load_checkpoint(tmp_path / name).config for name in ("ours", "reference")]
    assert configs[0] == configs[1]


class Touch:
    """An object of a run whose pickle writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def composer_run(folder: Path, config: ModernBertConfig) -> dict[str, Any]:
    """Return a checkpoint of a training run, and write its ``config.json`` to a folder."""
    source = composer_checkpoint(folder, "masked-lm", config)
    model = torch.load(source / "pytorch_model.bin", weights_only=True)
    (source / "pytorch_model.bin").unlink()
    moments = {name: {"step": torch.tensor(3.0), "exp_avg": t} for name, t in model.items()}
    draws = [random.getstate(), np.random.get_state(), torch.get_rng_state()]
    return {
        "state": {
            "model": {f"model.{name}": tensor for name, tensor in model.items()},
            "optimizers": {"StableAdamW": {"state": moments, "param_groups": [{"lr": 8e-4}]}},
            "timestamp": {"Timestamp": {"batch": 3, "wct": timedelta(seconds=9)}},
            "dataset_state": defaultdict(list, {"train": [1]}),
        },
        "rng": [dict(zip(("python", "numpy", "torch"), draws, strict=True))],
    }


def test_the_model_of_a_training_run_of_composer_is_read(tmp_path: Path) -> None:
    """Other states are passed over, and no code in them is run."""
    config = replace(SMALL, max_positions=8192, global_rope_theta=160_000.0)
    run, source = composer_run(tmp_path, config), tmp_path / "composer"
    run["state"]["callbacks"] = [Touch(tmp_path / "touched")]
    torch.save(run, source / "ep0-ba3-rank0.pt")
    with pytest.raises(UsageError, match=r"ep0-ba3-rank0\.pt, a pickle"):
        convert(CheckpointDir(source, "run"), tmp_path / "ours")
    for path, name in ((source, "ours"), (tmp_path / "hub", "reference")):
        assert convert(CheckpointDir(path, name), tmp_path / name, allow_pickle=True).mapping
    ours, reference = (
        load_file(tmp_path / name / "model.safetensors") for name in ("ours", "reference")
    )
    assert ours.keys() == reference.keys()
    assert [name for name in ours if not torch.equal(ours[name], reference[name])] == []
    assert not (tmp_path / "touched").exists()


def test_other_files_of_training_runs_are_refused(tmp_path: Path) -> None:
    run, source = composer_run(tmp_path, SMALL), tmp_path / "composer"
    model = run["state"]["model"]
    odd = {
        "it has no state.model": run["state"],
        "'head' in its state.model does not begin": {"state": {"model": {**model, "head": ZERO}}},
        "entry 'model.x' is not a tensor": {
            "state": {"model": {**model, "model.x": Touch(source)}}
        },
        "1 in the file that no rule knows (x)": {"state": {"model": {**model, "model.x": ZERO}}},
    }
    for message, content in odd.items():
        torch.save(content, source / "ep0-ba3-rank0.pt")
        with pytest.raises(VerificationError) as error:
            convert(CheckpointDir(source, "run"), tmp_path / "ours", allow_pickle=True)
        assert message in str(error.value), error.value
    torch.save(run, source / "latest-rank0.pt")
    with pytest.raises(UsageError, match="holds 2 checkpoints of Composer"):
        convert(CheckpointDir(source, "run"), tmp_path / "ours", allow_pickle=True)
    assert not (tmp_path / "ours").exists()


def test_local_attention_of_composer_takes_the_global_base_by_default() -> None:
    flex = {"architectures": ["FlexBertForMaskedLM"], **FLEX, "local_attn_rotary_emb_base": -1}
    assert MODERNBERT.translate_config(flex)["local_rope_theta"] == 160_000.0


@pytest.mark.parametrize(
    ("key", "value"),
    [("bert_layer", "postnorm"), ("mlp_layer", "mlp"), ("attn_qkv_bias", True)],
)
def test_other_encoders_of_composer_are_refused(key: str, value: object, tmp_path: Path) -> None:
    source = composer_checkpoint(tmp_path, "masked-lm", SMALL, **{key: value})
    with pytest.raises(VerificationError, match=f"config.json: {key} = {value!r}, and ModernBERT"):
        convert(CheckpointDir(source, str(source)), tmp_path / "ours", allow_pickle=True)


@pytest.mark.parametrize("tied", [True, False])
def test_odd_files_are_converted_both_ways(tied: bool, tmp_path: Path) -> None:
    """Shards of a ``.bin`` file in half precision, from a wrapper, without the head's prefix."""
    config = replace(SMALL, tie_embeddings=tied)
    hub = tmp_path / "hub"
    parity.save_reference(MODERNBERT, config, "masked-lm", hub, "float16")
    tensors = load_file(hub / "model.safetensors")
    (hub / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"pytorch_model-00001-of-00002.bin": names[::2]}
    shards["pytorch_model-00002-of-00002.bin"] = names[1::2]
    for file, part in shards.items():
        torch.save({f"module.{name}": tensors[name] for name in part}, hub / file)
    index = {f"module.{name}": file for file, part in shards.items() for name in part}
    (hub / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    convert(CheckpointDir(hub, "hub"), tmp_path / "ours", allow_pickle=True)
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == tensors.keys()
    assert [name for name in back if not torch.equal(back[name], tensors[name])] == []

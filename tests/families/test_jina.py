"""JinaBERT v2 next to its published formula, and version 3 next to the reference library."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.families import parity
from tests.families.jina_formula import formula
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.checkpoint import load_checkpoint
from zoo.conformance.hf_reference import hub_state
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir
from zoo.testing.conformance import FamilyTests
from zoo_jina import Jina
from zoo_jina.config import SIZES, JinaConfig

JINA = Jina()
SMALL = JinaConfig(**SMALL_SIZES)
V2 = JinaConfig(
    **{**SMALL_SIZES, "num_heads": 6, "type_vocab_size": 2, "layer_norm_eps": 1e-12},
    model_type="jina_bert",
    pad_token_id=0,
)


class TestV3(ReferenceTests, FamilyTests):
    family = JINA
    golden = Path(__file__).parents[1] / "golden" / "jina"
    base = replace(SIZES["v3"], vocab_size=1000, num_layers=2, max_positions=512)
    others = ()
    small = SMALL
    settings = (
        {"tie_embeddings": False},
        {"rope_theta": 90.0, "type_vocab_size": 3},
        {"activation": "relu", "layer_norm_eps": 0.1},
        {"pad_token_id": None},
        {"labels": ("one",), "problem": "regression"},
    )
    default = JinaConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("is_decoder", True): "is_decoder",
        ("position_embedding_type", "alibi"): "position_embedding_type",
        ("rope_parameters.rope_type", "yarn"): "rope_type",
        ("auto_map", (("AutoModel", "a--b"),)): "auto_map",
    }
    # A vocabulary of 30,528 of width D; L layers of 4 D (D + 1) + 12 D^2 + D + 4 D; types, a norm
    # and a pooler.
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("v2-base", "none"): 30_530 * 768 + 2 * 768 + 12 * (16 * 768**2 + 9 * 768) + 768 * 769,
    }
    variants = ({"type_vocab_size": 2},)
    carried: ClassVar[dict[str, Any]] = {"bos_token_id": 0}


# JinaBERT, which the reference library does not have


CHANGES: list[dict[str, Any]] = [
    {},
    {"num_heads": 4},
    {"num_heads": 3, "gate": "relu"},
    {"layer_norm_eps": 0.1, "type_vocab_size": 1},
    {"num_layers": 1, "num_heads": 8, "intermediate_size": 24},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_outputs_and_gradients_follow_the_published_formula(changes: dict[str, Any]) -> None:
    config = replace(V2, **changes)
    model = parity.random_model(JINA, config, "none")
    rules = JINA.weights(config, "none")
    hub = {
        f"bert.{name}": tensor.detach().requires_grad_()
        for name, tensor in hub_state(rules, model.state_dict()).items()
    }
    ids = torch.randint(1, config.vocab_size, (3, 33), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 20:] = 0
    mask[2, 1:] = 0
    real = mask.bool()
    expected = formula(config, hub, ids, mask)[real]
    outputs = model(ids, mask)["last_hidden_state"][real]
    assert (outputs - expected).abs().max() <= 1e-9
    for result in (expected, outputs):
        torch.autograd.backward(result.square().mean())
    for entry in rules.entries():
        gradient = model.get_parameter(entry.target).grad
        parts = [part for name in entry.sources if (part := hub[name].grad) is not None]
        if gradient is None:  # The pooler has no part in these outputs.
            assert not parts, entry.target
            continue
        assert (gradient - torch.cat(parts)).abs().max() <= 1e-9, entry.target
    single = model.float()(ids, mask)["last_hidden_state"][real]
    assert (single - expected).abs().max() <= 1e-5 * expected.abs().max()


PUBLISHED: dict[str, Any] = {
    "architectures": ["JinaBertForMaskedLM"],
    "attention_probs_dropout_prob": 0.0,
    "attn_implementation": "torch",
    "auto_map": {
        "AutoConfig": "jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig",
        "AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel",
    },
    "classifier_dropout": None,
    "emb_pooler": "mean",
    "feed_forward_type": "geglu",
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 8192,
    "model_max_length": 8192,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "position_embedding_type": "alibi",
    "torch_dtype": "float16",
    "type_vocab_size": 2,
    "use_cache": True,
    "vocab_size": 30528,
}


def test_a_published_configuration_is_read() -> None:
    translated = JINA.from_hub(JINA.translate_config(PUBLISHED))
    assert translated.config == SIZES["v2-base"]
    assert translated.unknown == ()


def write_published(folder: Path, head: str, **changes: Any) -> dict[str, Tensor]:
    """Write a small model with the published keys and names; return its tensors."""
    config = replace(V2, labels=("one", "two"))
    model = parity.random_model(JINA, config, head).float()
    tensors = hub_state(JINA.weights(config, head), model.state_dict())
    for tied in ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
        tensors.pop(tied, None)  # They are stored once.
    sizes = {
        "vocab_size": 101,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "intermediate_size": 80,
        "max_position_embeddings": 40,
    }
    hub = {**PUBLISHED, **sizes, **changes}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(hub))
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )
    return tensors


@pytest.mark.parametrize("head", ["none", "masked-lm", "sequence-classification"])
def test_published_files_are_converted_both_ways(head: str, tmp_path: Path) -> None:
    architecture = JINA.architecture(V2, head)
    tensors = write_published(tmp_path / "hub", head, architectures=[architecture])
    assert convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "ours").head == head
    assert load_checkpoint(tmp_path / "ours").family.name == "jina"
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    written = load_file(tmp_path / "back" / "model.safetensors")
    assert written.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(written[name], tensor), name
    before, after = (
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("hub", "back")
    )
    del before["torch_dtype"]  # It is written as the dtype of the file.
    assert {key: after[key] for key in before} == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "absolute"}, "position_embedding_type = 'absolute'"),
        ({"feed_forward_type": "original"}, "feed_forward_type = 'original'"),
        (
            {
                "auto_map": {
                    "AutoModel": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"
                }
            },
            "auto_map names the code jinaai/jina-bert-v2-qk-post-norm",
        ),
    ],
)
def test_other_encoders_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_published(tmp_path / "hub", "none", **changes)
    with pytest.raises(VerificationError, match=message):
        convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "ours")

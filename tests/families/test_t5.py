"""T5: the conformance kit, and equality with the reference library on random weights."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace
from torch import Tensor, nn

from tests.exporting.making import export_onnx
from tests.families import parity
from tests.families.further_version import FurtherVersionTests
from zoo.checkpoint import load_checkpoint
from zoo.conformance.comparison import TensorDifference, compare_with_reference
from zoo.conformance.hf_reference import named_outputs, reference_model
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.families.random_inputs import random_inputs
from zoo.hub.source import CheckpointDir
from zoo.inference.load_model import load_model
from zoo.io.tensors.formats import TensorInfo
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.testing.conformance import FamilyTests
from zoo.weights import match_tensors
from zoo_t5 import T5
from zoo_t5.config import SIZES, T5Config

FAMILY = T5()
HEADS = [name for name, head in FAMILY.heads().items() if head.architectures]
SMALL = T5Config(
    vocab_size=101,
    hidden_size=48,
    head_size=20,
    intermediate_size=80,
    num_layers=3,
    num_decoder_layers=2,
    num_heads=3,
    labels=("one", "two", "three"),
)
LATER: dict[str, Any] = {
    "feed_forward": "gated-gelu",
    "output_table": True,
    "scale_outputs": False,
}


class TestT5(FamilyTests):
    family = FAMILY
    golden = Path(__file__).parents[1] / "golden" / "t5"


class TestVersion11(FurtherVersionTests):
    family = FAMILY
    test_label_leaks = None  # objectives and masks are of every version

    @property
    def config(self) -> T5Config:
        return replace(SIZES["tiny"], **LATER)


def random_model(config: T5Config, head: str) -> nn.Module:
    model = parity.random_model(FAMILY, config, head)
    with torch.no_grad():  # scores are not scaled; small queries keep them moderate
        for name, parameter in model.named_parameters():
            if "cross.q" in name:
                parameter.mul_(config.head_size**-0.5)
            elif "qkv" in name:
                parameter[: config.inner_size].mul_(config.head_size**-0.5)
            elif name.endswith("positions.weight"):
                parameter.mul_(3)
    return model


def assert_equal_to_reference(
    config: T5Config, head: str, inputs: dict[str, Tensor] | None = None
) -> None:
    model = random_model(parity.suited(config, head), head)
    parity.assert_equal(FAMILY, config, head, model, inputs)


# Parity with the reference library


@pytest.mark.by_default("plain", "gated-untied-seq2seq-lm")
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("changes", [{}, LATER], ids=["plain", "gated-untied"])
def test_small_models_equal_the_reference(changes: dict[str, Any], head: str) -> None:
    assert_equal_to_reference(replace(SMALL, **changes), head)


@pytest.mark.by_default("seq2seq-lm")
@pytest.mark.parametrize("head", HEADS)
def test_mt5_equals_the_reference(head: str) -> None:
    assert_equal_to_reference(replace(SMALL, **LATER, series="mt5"), head)


@pytest.mark.by_default("plain-none", "plain-seq2seq-lm", "gated-untied-seq2seq-lm")
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("changes", [{}, LATER], ids=["plain", "gated-untied"])
def test_umt5_equals_the_reference(changes: dict[str, Any], head: str) -> None:
    """Each block has a table of relative positions."""
    assert_equal_to_reference(replace(SMALL, **changes, series="umt5"), head)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_buckets": 12, "max_distance": 31},
        {"num_layers": 1, "num_decoder_layers": 4},
        {"feed_forward": "gated-silu"},
    ],
    ids=str,
)
def test_settings_of_umt5_equal_the_reference(changes: dict[str, Any]) -> None:
    config = replace(SMALL, **{**LATER, "series": "umt5", **changes})
    assert_equal_to_reference(config, "seq2seq-lm")


@pytest.mark.by_default("seq2seq-lm")
@pytest.mark.parametrize("head", HEADS)
def test_a_padded_text_of_full_length_equals_the_reference(head: str) -> None:
    config = replace(SMALL, num_layers=2)
    inputs = random_inputs(FAMILY.onnx(config, head), config, (512, 300, 1))
    assert_equal_to_reference(config, head, inputs)


@pytest.mark.parametrize(
    "changes",
    [
        {"output_table": True, "scale_outputs": False},
        {"output_table": False, "scale_outputs": False},
        {"output_table": True, "scale_outputs": True},
        {"feed_forward": "gelu"},
        {"feed_forward": "silu"},
        {"feed_forward": "gated-sigmoid"},
        {"feed_forward": "gated-linear"},
        {"feed_forward": "gated-relu"},
        {"feed_forward": "gated-silu"},
        {"num_buckets": 12, "max_distance": 31},
        {"layer_norm_eps": 0.1},
        {"num_decoder_layers": None},
        {"num_layers": 1, "num_decoder_layers": 4},
        {"pad_token_id": 5, "decoder_start_token_id": 7},
    ],
    ids=str,
)
def test_settings_equal_the_reference(changes: dict[str, Any]) -> None:
    assert_equal_to_reference(replace(SMALL, **changes), "seq2seq-lm")


def test_untied_output_embeddings_equal_the_reference() -> None:
    """The reference ties every new model; here the weights differ, so it is untied."""
    for changes in ({}, LATER):
        config = replace(SMALL, **changes)
        model = random_model(config, "seq2seq-lm")
        reference: Any = reference_model(FAMILY, config, "seq2seq-lm", model.state_dict())
        tied = reference.lm_head.weight is reference.shared.weight
        assert tied != config.output_table
        assert reference.config.scale_decoder_outputs == config.scale_outputs


@pytest.mark.parametrize(
    ("size", "head"), [("v1.1-base", "none"), *(("base", head) for head in HEADS)]
)
@pytest.mark.long
def test_base_equals_the_reference(size: str, head: str) -> None:
    config = SIZES[size]
    model = random_model(config, head)
    reference = reference_model(FAMILY, config, head, model.state_dict())
    for dtype in (torch.float64, torch.float32):
        model, reference = model.to(dtype), reference.to(dtype)
        for lengths in ((1,), (17, 9), (512,)):
            inputs = random_inputs(FAMILY.onnx(config, head), config, lengths)
            with torch.no_grad():
                ours, outputs = model(**inputs), reference(**inputs)
            for name, theirs in named_outputs(outputs, list(ours)).items():
                difference = TensorDifference.between(ours[name], theirs)
                if dtype is torch.float64:
                    assert difference.absolute <= 1e-9, (name, lengths)
                else:
                    assert difference.relative <= 1e-5, (name, lengths)


def test_layers_of_encoder_and_decoder_are_compared() -> None:
    model = random_model(SMALL, "seq2seq-lm")
    comparison = compare_with_reference(FAMILY, SMALL, "seq2seq-lm", model)
    names = ["embeddings", "layers.0", "layers.1", "layers.2"]
    assert list(comparison.layers) == [*names, "decoder.layers.0", "decoder.layers.1"]
    model.get_submodule("decoder.layers.1.ffn").act = torch.tanh  # type: ignore[assignment]
    comparison = compare_with_reference(FAMILY, SMALL, "seq2seq-lm", model)
    assert comparison.first_diverging == "decoder.layers.1"


# Relative positions


# Sizes


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("small", 60_506_624),
        ("base", 222_903_552),
        ("large", 737_668_096),
        ("v1.1-small", 76_961_152),
        ("v1.1-base", 247_577_856),
        ("v1.1-large", 783_150_080),
    ],
)
def test_parameter_counts_are_the_published_ones(size: str, count: int) -> None:
    with init_empty_weights():
        model = FAMILY.model(SIZES[size], "seq2seq-lm")
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert FAMILY.weights(SIZES[size], "seq2seq-lm").parameters() == count


# Configuration


@pytest.mark.parametrize("kind", [transformers.T5Config, transformers.MT5Config])
def test_keys_of_the_reference_are_known(kind: Any) -> None:
    translated = FAMILY.from_hub(kind().to_dict())
    assert translated.unknown == ()
    expected = SIZES["small"] if kind.model_type == "t5" else SIZES["mt5-small"]
    assert replace(translated.config, num_decoder_layers=None) == expected


# published configurations: the first release, version 1.1, mT5
PUBLISHED = {
    "small": {
        "architectures": ["T5WithLMHeadModel"],
        "d_ff": 2048,
        "d_kv": 64,
        "d_model": 512,
        "decoder_start_token_id": 0,
        "dropout_rate": 0.1,
        "eos_token_id": 1,
        "initializer_factor": 1.0,
        "is_encoder_decoder": True,
        "layer_norm_epsilon": 1e-06,
        "model_type": "t5",
        "n_positions": 512,
        "num_heads": 8,
        "num_layers": 6,
        "output_past": True,
        "pad_token_id": 0,
        "relative_attention_num_buckets": 32,
        "task_specific_params": {"summarization": {"num_beams": 4}},
        "vocab_size": 32128,
    },
    "v1.1-base": {
        "architectures": ["T5ForConditionalGeneration"],
        "d_ff": 2048,
        "d_kv": 64,
        "d_model": 768,
        "decoder_start_token_id": 0,
        "dense_act_fn": "gelu_new",
        "feed_forward_proj": "gated-gelu",
        "is_gated_act": True,
        "model_type": "t5",
        "num_decoder_layers": 12,
        "num_heads": 12,
        "num_layers": 12,
        "output_past": True,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": 32128,
    },
    "mt5-small": {
        "d_ff": 1024,
        "d_kv": 64,
        "d_model": 512,
        "feed_forward_proj": "gated-gelu",
        "model_type": "mt5",
        "num_decoder_layers": 8,
        "num_heads": 6,
        "num_layers": 8,
        "tie_word_embeddings": False,
        "tokenizer_class": "T5Tokenizer",
        "vocab_size": 250112,
    },
}


@pytest.mark.parametrize("size", PUBLISHED)
def test_published_configurations_are_read(size: str) -> None:
    translated = FAMILY.from_hub(PUBLISHED[size])
    assert replace(translated.config, num_decoder_layers=None) == SIZES[size]
    assert translated.unknown == ()
    back = FAMILY.to_hub(translated.config, translated.extra)
    assert {key: back.get(key) for key in PUBLISHED[size]} == {
        **PUBLISHED[size],
        **({"architectures": None} if "architectures" in PUBLISHED[size] else {}),
    }


@pytest.mark.parametrize(
    ("hub", "named"),
    [
        ({"feed_forward_proj": "gated-swish"}, "feed_forward_proj"),
        ({"is_decoder": True}, "is_decoder"),
        (
            {"tie_encoder_decoder": True, "num_decoder_layers": 4},
            "tie_encoder_decoder needs 6 blocks in the decoder",
        ),
        ({"dense_act_fn": "silu"}, "dense_act_fn = 'silu' contradicts"),
        ({"is_gated_act": True}, "is_gated_act = True contradicts"),
        ({"d_model": "512"}, "d_model"),
        ({"num_layers": 0}, "num_layers = 0 is not positive"),
        ({"num_decoder_layers": 0}, "config.json: num_decoder_layers = 0 is not positive"),
        ({"d_kv": -1}, "config.json: d_kv = -1 is not positive"),
        ({"layer_norm_epsilon": float("nan")}, "layer_norm_epsilon = nan is not positive"),
        ({"dropout_rate": 1.0}, r"dropout_rate = 1.0 is not in \[0, 1\)"),
        ({"eos_token_id": 32128}, "eos_token_id 32128 is outside"),
        ({"relative_attention_num_buckets": 2}, "num_buckets is 2"),
        ({"relative_attention_max_distance": 16}, "max_distance 16"),
    ],
)
def test_unimplemented_settings_are_refused_by_name(hub: dict[str, Any], named: str) -> None:
    with pytest.raises(VerificationError, match=named):
        FAMILY.from_hub({"model_type": "t5", **hub})


# Published weights


def test_file_of_the_first_release_is_matched() -> None:
    file = parity.published(FAMILY, SMALL, "seq2seq-lm")
    aliases = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"]
    file |= dict.fromkeys(aliases, file["shared.weight"])
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    file[unused] = TensorInfo("F32", (32, 3))
    mapping = match_tensors(FAMILY.weights(SMALL, "seq2seq-lm"), file)
    mapping.raise_if_incomplete("test")
    assert mapping.ties == dict.fromkeys(aliases, "shared.weight")
    assert list(mapping.drops) == [unused]


def test_file_with_the_alias_alone_is_matched() -> None:
    file = parity.published(FAMILY, SMALL, "encoder")
    file["encoder.embed_tokens.weight"] = file.pop("shared.weight")
    mapping = match_tensors(FAMILY.weights(SMALL, "encoder"), file)
    mapping.raise_if_incomplete("test")
    assert "encoder.embed_tokens.weight" in {name for copy in mapping.copies for name in copy.names}


def test_the_file_decides_whether_there_is_a_table_where_the_scale_allows_both() -> None:
    """``tie_word_embeddings`` is not used: the reference writes ``true`` for every model."""
    hub = {**FAMILY.to_hub(replace(SMALL, **LATER)), "tie_word_embeddings": True}
    config = FAMILY.from_hub(hub).config
    assert isinstance(config, T5Config) and config.output_table and not config.scale_outputs
    file = parity.published(FAMILY, config, "seq2seq-lm")
    mapping = match_tensors(FAMILY.weights(config, "seq2seq-lm"), file)
    mapping.raise_if_incomplete("test")
    assert mapping.present == ("output_table",)
    del file["lm_head.weight"]
    mapping = match_tensors(FAMILY.weights(config, "seq2seq-lm"), file)
    mapping.raise_if_incomplete("test")
    assert mapping.absent == ("output_table",)


# Behaviour


def test_import_of_the_family_imports_no_torch() -> None:
    code = (
        "import sys, zoo_t5; family, = zoo_t5.zoo_families(); family.sizes(); family.heads();"
        "family.weights(family.sizes()['tiny'], 'none').entries(); "
        "print({'torch', 'numpy', 'tokenizers', 'onnx', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_text_without_an_end_is_classified_at_its_last_token() -> None:
    model = random_model(SMALL, "sequence-classification")
    ids = torch.tensor([[7, 8, 9, 0], [7, 8, 9, 0]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    with torch.no_grad():
        logits = model(ids, mask)["logits"]
        short = model(ids[:1, :3])["logits"]
    assert (logits[0] - short[0]).abs().max() <= 1e-12
    assert (logits[1] - short[0]).abs().max() > 1e-3


def test_scale_of_initialization_equals_the_reference() -> None:
    torch.manual_seed(0)
    config = replace(SIZES["v1.1-small"], vocab_size=2000, num_layers=1)
    ours = FAMILY.model(config, "seq2seq-lm")
    hub = transformers.T5Config(**FAMILY.to_hub(config))
    theirs = transformers.T5ForConditionalGeneration(hub)
    names = {name: tensor for name, tensor in theirs.state_dict().items() if "lm_head" not in name}
    for entry in FAMILY.weights(config, "seq2seq-lm").entries():
        parts = entry.op.to_hub(ours.state_dict()[entry.target].numpy())
        for name, part in zip(entry.sources, parts, strict=True):
            wanted = names[name].std().item() if name in names else 1.0
            assert abs(part.std() - wanted) <= 0.1 * wanted, name


def test_mimetic_queries_of_cross_attention_prefer_keys_of_equal_states() -> None:
    config = replace(SMALL, hidden_size=256, head_size=64)
    models = {}
    for scale in (None, 0.25):
        torch.manual_seed(0)
        models[scale] = FAMILY.model(replace(config, mimetic_init_scale=scale), "seq2seq-lm")
    released, mimetic = (models[scale].state_dict() for scale in (None, 0.25))
    changed = [name for name in released if not torch.equal(released[name], mimetic[name])]
    assert changed == [f"decoder.layers.{layer}.cross.q.weight" for layer in (0, 1)]
    states = nn.functional.rms_norm(torch.randn(50, 256), (256,))
    for query, key in [(mimetic[name], mimetic[name.replace(".q.", ".kv.")]) for name in changed]:
        query, key = query[:64].double(), key[:64].double()  # of the first head
        scores = states.double() @ query.T @ key @ states.double().T
        # key weights have the variance 1 / 256: the expected score of equal states is 0.25 * 64
        assert abs(scores.diagonal().mean() - 16) < 1
        assert scores.argmax(1).tolist() == list(range(50))


def test_float16_saturates_like_the_reference() -> None:
    config = replace(SMALL, dropout=0.0)
    model = random_model(config, "encoder")
    with torch.no_grad():
        model.get_parameter("layers.0.ffn.down.weight").mul_(1e5).clamp_(-6e4, 6e4)
    reference = reference_model(FAMILY, config, "encoder", model.state_dict()).half()
    inputs = random_inputs(FAMILY.onnx(config, "encoder"), config, (9, 4))
    with torch.no_grad():
        ours = model.half()(**inputs)["last_hidden_state"]
        theirs: Tensor = reference(**inputs).last_hidden_state
    assert ours.isfinite().all() and theirs.isfinite().all()
    assert TensorDifference.between(ours.float(), theirs.float()).relative <= 2e-2


# Conversion


@pytest.mark.by_default(
    "plain-seq2seq-lm",
    "later-encoder",
    "later-sequence-classification",
    "mt5-question-answering",
)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "changes", [{}, LATER, {**LATER, "series": "mt5"}], ids=["plain", "later", "mt5"]
)
def test_hub_round_trip(changes: dict[str, Any], head: str, tmp_path: Path) -> None:
    parity.assert_there_and_back(FAMILY, replace(SMALL, **changes), head, tmp_path, n_positions=512)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_round_trip(dtype: str, tmp_path: Path) -> None:
    parity.assert_there_and_back(FAMILY, replace(SMALL, **LATER), "seq2seq-lm", tmp_path, dtype)


@pytest.mark.parametrize("changes", [{}, LATER], ids=["plain", "later"])
def test_file_written_by_the_reference_is_read(changes: dict[str, Any], tmp_path: Path) -> None:
    """Its configuration states that all models are tied; scale and tensors determine it."""
    config = replace(SMALL, **changes)
    model = random_model(config, "seq2seq-lm").float()
    reference: Any = reference_model(FAMILY, config, "seq2seq-lm", model.state_dict())
    reference.save_pretrained(tmp_path / "hub")
    hub = json.loads((tmp_path / "hub" / "config.json").read_text())
    assert hub["tie_word_embeddings"] is True
    convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "ours")
    checkpoint = load_checkpoint(tmp_path / "ours")
    assert replace(checkpoint.config, num_decoder_layers=2) == config
    inputs = random_inputs(FAMILY.onnx(config, "seq2seq-lm"), config, (9, 4))
    with torch.no_grad():
        outputs, expected = load_model(checkpoint)(**inputs), model(**inputs)
    assert torch.equal(outputs["logits"], expected["logits"])


def test_mimetic_initialization_is_kept_in_the_hubs_layout(tmp_path: Path) -> None:
    config = replace(SMALL, mimetic_init_scale=0.3)
    assert FAMILY.to_hub(config) == {**FAMILY.to_hub(SMALL), "mimetic_init_scale": 0.3}
    parity.assert_there_and_back(FAMILY, config, "seq2seq-lm", tmp_path)
    checkpoint = load_checkpoint(tmp_path / "ours")
    assert replace(checkpoint.config, num_decoder_layers=2) == config


def test_untied_file_without_output_embeddings_is_refused(tmp_path: Path) -> None:
    config = replace(SMALL, **{**LATER, "output_table": False})
    model = random_model(config, "seq2seq-lm").float()
    reference: Any = reference_model(FAMILY, config, "seq2seq-lm", model.state_dict())
    reference.save_pretrained(tmp_path / "hub")
    path = tmp_path / "hub" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": False}))
    with pytest.raises(VerificationError, match=r"missing from the file .lm_head\.weight"):
        convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "ours", head="seq2seq-lm")
    assert not (tmp_path / "ours").exists()


def test_encoder_of_a_whole_model_is_converted(tmp_path: Path) -> None:
    model = random_model(SMALL, "seq2seq-lm").float()
    reference: Any = reference_model(FAMILY, SMALL, "seq2seq-lm", model.state_dict())
    reference.save_pretrained(tmp_path / "hub")
    for source in ("hub", "ours"):
        target = tmp_path / f"encoder-of-{source}"
        report = convert(CheckpointDir(tmp_path / source, source), target, head="encoder")
        assert [
            d for d in report.mapping.drops.values() if "encoder was requested" not in d.reason
        ] == []
        encoder: Any = load_model(load_checkpoint(target))
        inputs = random_inputs(FAMILY.onnx(SMALL, "encoder"), SMALL, (9, 4))
        with torch.no_grad():
            hidden = encoder(**inputs)["last_hidden_state"]
            expected = model.encode(inputs["input_ids"], inputs["attention_mask"])  # type: ignore[operator]
        assert torch.equal(hidden, expected)
        convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "ours", force=True)


@pytest.mark.long  # tests/tasks exports the encoder, and tests/exporting the decoder
@pytest.mark.parametrize("head", ["encoder", "sequence-classification"])
def test_export(head: str, tmp_path: Path) -> None:
    config = replace(SMALL, **LATER, num_layers=2, num_decoder_layers=1)
    model = random_model(config, head).float()
    reference: Any = reference_model(FAMILY, config, head, model.state_dict())
    reference.save_pretrained(tmp_path / "hub")
    convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "ours", head=head)
    report = export_onnx(load_checkpoint(tmp_path / "ours"), tmp_path / "graph")
    assert report.validated and report.max_rel <= 1e-5

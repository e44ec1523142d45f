"""XLM and FlauBERT: the conformance kit, and equality with the reference library."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import transformers
from msgspec.structs import replace
from transformers.cache_utils import EncoderDecoderCache

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.conformance.hf_reference import keep_float64, reference_model
from zoo.nn.layers.layer_drop import LayerDrop, run_skipped_blocks
from zoo.testing.conformance import FamilyTests
from zoo_xlm import XLM
from zoo_xlm.config import SIZES, XLMConfig

FAMILY = XLM()
_SIZES = {name: size for name, size in SMALL_SIZES.items() if name != "intermediate_size"}
SMALL = XLMConfig(**_SIZES)
SEVERAL = replace(SMALL, num_languages=3)


class TestXlm(ReferenceTests, FamilyTests):
    family = FAMILY
    golden = Path(__file__).parents[1] / "golden" / "xlm"
    base = replace(SIZES["flaubert-base-cased"], vocab_size=1000)
    others = ("tiny",)
    small = SMALL
    settings = (
        {"tie_embeddings": False},
        {"model_type": "flaubert", "layerdrop": 0.3},
        {"activation": "relu", "layer_norm_eps": 0.1},
        {"num_languages": 3, "sinusoidal_positions": True},
        {"num_languages": 3, "language_embeddings": False, "pad_token_id": 5},
        {"labels": ("one",), "problem": "regression"},
    )
    default = XLMConfig()
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("asm", True): "asm",
        ("causal", True): "causal",
        ("is_encoder", False): "is_encoder",
        ("summary_type", "mean"): "summary_type",
        ("summary_activation", "tanh"): "summary_activation",
        ("summary_last_dropout", 0.2): "summary_last_dropout",
        ("share_inout_emb", False): "share_inout_emb",
    }
    # 2,048 wide: 30,145 tokens, 512 positions, 12 blocks of 12 x 2,048 ** 2 + 13 x 2,048
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("en", "none"): 30_657 * 2048 + 2 * 2048 + 12 * (12 * 2048**2 + 13 * 2048),
    }
    variants = (
        {"model_type": "flaubert", "layerdrop": 0.1},
        {"num_languages": 3},
        {"tie_embeddings": False},
    )
    carried: ClassVar[dict[str, Any]] = {"lang_id": 1, "start_n_top": 4}


@pytest.mark.parametrize("head", FAMILY.heads())
def test_languages_equal_the_reference(head: str) -> None:
    config = parity.suited(SEVERAL, head)
    model = parity.random_model(FAMILY, config, head)
    reference: Any = reference_model(FAMILY, config, head, model.state_dict())
    ids = torch.tensor([[7, 8, 9, 4], [5, 6, 2, 2]])
    inputs = {"input_ids": ids, "attention_mask": (ids != 2).long()}
    langs = torch.tensor([[0, 1, 2, 2], [1, 1, 0, 0]])
    real = inputs["attention_mask"].bool()
    outputs = model(**inputs, langs=langs)
    with keep_float64():
        expected = reference(**inputs, langs=langs)
    without_languages = model(**inputs)
    for name, output in outputs.items():
        rows = real if output.shape[:2] == ids.shape else slice(None)
        assert (output[rows] - expected[name][rows]).abs().max() <= 1e-9
        assert (output[rows] - without_languages[name][rows]).abs().max() > 1e-3


def test_languages_of_one_language_are_refused() -> None:
    model = parity.random_model(FAMILY, SMALL, "none")
    ids = torch.tensor([[7, 8]])
    with pytest.raises(ValueError, match="no language embeddings"):
        model(ids, langs=torch.zeros_like(ids))


@pytest.mark.parametrize("head", ["none", "masked-lm", "sequence-classification"])
def test_norms_before_attention_equal_the_reference(
    head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference indexes its cache by layer, which its class of caches no longer supports."""
    monkeypatch.setattr(EncoderDecoderCache, "__getitem__", lambda cache, layer: cache, False)
    config = replace(SMALL, model_type="flaubert", pre_norm=True, activation="relu")
    parity.assert_equal(FAMILY, config, head)


def layer_drop_models(p: float) -> tuple[Any, Any]:
    """Return a model without other dropout and its reference, in training."""
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.0}
    config = replace(SMALL, model_type="flaubert", num_layers=5, layerdrop=p, **rates)
    model = parity.random_model(FAMILY, config, "masked-lm")
    reference: Any = reference_model(FAMILY, config, "masked-lm", model.state_dict())
    return model.train(), reference.train()


def test_skipped_blocks_and_gradients_follow_the_plain_loop() -> None:
    """The reference draws one number for each block from the same generator."""
    model, reference = layer_drop_models(0.5)
    ids = torch.tensor([[7, 8, 9, 4], [5, 6, 3, 1]])
    rules = FAMILY.weights(replace(SMALL, num_layers=len(model.layers)), "masked-lm")
    skipped = set[int]()
    for seed in range(6):
        for module in (model, reference):
            module.zero_grad(set_to_none=True)
            torch.manual_seed(seed)
            with keep_float64():
                logits = module(input_ids=ids)["logits"]
            logits.square().mean().backward()
        expected = dict(reference.named_parameters())
        for entry in rules.entries():
            ours = model.get_parameter(entry.target).grad
            theirs = [expected[name].grad for name in entry.sources]
            if any(gradient is None for gradient in theirs):
                assert ours is None and theirs == [None] * len(theirs)
                skipped.add(int(entry.target.split(".")[1]))
            else:
                assert (ours - torch.cat(theirs)).abs().max() <= 1e-9, entry.target
    assert skipped == set(range(5))


def test_skipped_blocks_that_run_have_gradients_of_zero() -> None:
    """Processes that train together exchange the gradients of all blocks."""
    model, _ = layer_drop_models(0.5)
    ids = torch.tensor([[7, 8, 9, 4], [5, 6, 3, 1]])
    losses = []
    gradients: list[dict[str, Any]] = []
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        torch.manual_seed(1)
        loss = model(input_ids=ids)["logits"].square().mean()
        loss.backward()
        losses.append(loss)
        gradients.append({name: p.grad for name, p in model.named_parameters()})
        run_skipped_blocks(model)
    assert losses[0] == losses[1]
    skipped = [name for name, gradient in gradients[0].items() if gradient is None]
    assert skipped
    for name, gradient in gradients[1].items():
        expected = torch.zeros_like(gradient) if name in skipped else gradients[0][name]
        assert torch.equal(gradient, expected), name


def test_blocks_are_skipped_at_the_rate_and_only_in_training() -> None:
    torch.manual_seed(3)
    drop = LayerDrop(0.2)
    draws = [drop.skips_block() for _ in range(4000)]
    # Four standard deviations of a binomial distribution.
    assert abs(sum(draws) / 4000 - 0.2) <= 4 * (0.2 * 0.8 / 4000) ** 0.5
    assert sum(drop.eval().skips_block() for _ in range(100)) == 0


def test_selected_tokens_pass_a_skipped_last_block() -> None:
    model, _ = layer_drop_models(0.999)
    ids = torch.tensor([[7, 8, 9], [5, 6, 3]])
    torch.manual_seed(0)
    selected = model.encode_at(torch.tensor([4, 0]), ids)
    torch.manual_seed(0)
    assert torch.equal(selected, model.encode(ids).flatten(0, 1)[[4, 0]])


def test_new_sinusoidal_positions_are_those_of_the_reference() -> None:
    config = replace(SMALL, sinusoidal_positions=True)
    reference = transformers.XLMModel(transformers.XLMConfig(**FAMILY.to_hub(config)))
    ours: Any = FAMILY.model(config, "none").embeddings
    expected = reference.position_embeddings.weight
    assert (ours.positions.weight - expected).abs().max() <= 1e-6


def test_keys_of_flaubert_are_known() -> None:
    hub = transformers.FlaubertConfig().to_dict()
    translated = FAMILY.from_hub(hub)
    assert translated.unknown == ()
    assert translated.config == XLMConfig(model_type="flaubert")

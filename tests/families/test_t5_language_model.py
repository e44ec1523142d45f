"""T5's language model: one decoder without cross-attention, as in table 2 of its paper."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace
from torch import Tensor
from transformers.models.t5.modeling_t5 import T5Stack

from tests.families.test_t5 import FAMILY, LATER, SMALL, random_model
from tests.training.runs import assert_resumes_from, run_training
from tests.warm import zoo
from zoo.nn.layers.skip_init import init_empty_weights
from zoo_t5.config import SIZES, T5Config

LM = "causal-lm"


def reference_stack(config: T5Config, model: Any) -> T5Stack:
    """Return the decoder of the reference library, in float64, with a model's weights."""
    hub: Any = FAMILY.to_hub(config)
    names = ("vocab_size", "d_model", "d_kv", "d_ff", "num_heads", "feed_forward_proj")
    reference_config = transformers.T5Config(
        **{name: hub[name] for name in names},
        num_layers=config.num_layers,
        relative_attention_num_buckets=config.num_buckets,
        relative_attention_max_distance=config.max_distance,
        is_decoder=True,
        use_cache=False,
    )
    stack = T5Stack(reference_config).double().eval()
    weights: dict[str, Tensor] = {
        "embed_tokens.weight": model.embeddings.tokens.weight,
        "final_layer_norm.weight": model.final_norm.weight,
        "block.0.layer.0.SelfAttention.relative_attention_bias.weight": model.positions.weight,
    }
    up_names = ["wi_0", "wi_1"] if config.gated else ["wi"]
    for number, block in enumerate(model.layers):
        layer = f"block.{number}.layer"
        for name, matrix in zip("qkv", block.attention.qkv.weight.chunk(3), strict=True):
            weights[f"{layer}.0.SelfAttention.{name}.weight"] = matrix
        weights[f"{layer}.0.SelfAttention.o.weight"] = block.attention.out.weight
        weights[f"{layer}.0.layer_norm.weight"] = block.attention_norm.weight
        halves = block.ffn.up.weight.chunk(len(up_names))
        for name, matrix in zip(up_names, halves, strict=True):
            weights[f"{layer}.2.DenseReluDense.{name}.weight"] = matrix
        weights[f"{layer}.2.DenseReluDense.wo.weight"] = block.ffn.down.weight
        weights[f"{layer}.2.layer_norm.weight"] = block.ffn_norm.weight
    # The reference has cross-attention, which does nothing without an encoder.
    for name, tensor in stack.state_dict().items():
        if ".layer.1." in name:
            weights[name] = tensor
    stack.load_state_dict(weights)
    return stack


@pytest.mark.parametrize("changes", [{}, LATER], ids=["plain", "gated-untied"])
def test_logits_equal_those_of_a_decoder_without_encoder(changes: dict[str, Any]) -> None:
    config = replace(SMALL, **changes)
    model: Any = random_model(config, LM).double().eval()
    stack = reference_stack(config, model)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 100, (3, 150), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 90:] = 0
    mask[2, :40] = 0  # Prompts are padded on the left.
    with torch.no_grad():
        hidden = stack(input_ids=ids, attention_mask=mask).last_hidden_state
        if config.output_table:
            expected = hidden @ model.head.weight.T
        else:
            expected = (hidden * config.hidden_size**-0.5) @ stack.embed_tokens.weight.T
        logits = model(ids, mask)["logits"]
    is_token = mask.bool()
    assert (logits - expected)[is_token].abs().max() < 1e-10 * expected.abs().max()


def test_a_token_does_not_depend_on_later_ones() -> None:
    model: Any = random_model(SMALL, LM).double().eval()
    ids = torch.arange(5, 45)[None]
    changed = ids.clone()
    changed[0, 20:] = 99
    with torch.no_grad():
        before, after = (model(tokens)["logits"] for tokens in (ids, changed))
    assert torch.equal(before[:, :20], after[:, :20])
    assert not torch.equal(before[:, 20:], after[:, 20:])


def test_documents_of_a_packed_row_do_not_see_each_other() -> None:
    model: Any = random_model(SMALL, LM).double().eval()
    first, second = torch.arange(5, 17)[None], torch.arange(40, 60)[None]
    documents = torch.tensor([[1] * 12 + [2] * 20])
    with torch.no_grad():
        packed = model.encode(torch.cat([first, second], dim=1), document_ids=documents)
        alone = torch.cat([model.encode(first), model.encode(second)], dim=1)
    assert (packed - alone).abs().max() < 1e-10 * alone.abs().max()


@pytest.mark.parametrize("size", ["small", "base", "v1.1-base"])
def test_it_has_the_parameters_of_one_stack(size: str) -> None:
    """Table 2: P, where an encoder-decoder has 2P, without cross-attention and embeddings."""
    config = SIZES[size]
    with init_empty_weights():
        names = dict(FAMILY.model(config, LM).named_parameters())
    width, inner, layers = config.hidden_size, config.inner_size, config.num_layers
    matrices = 4 * width * inner + (3 if config.gated else 2) * width * config.intermediate_size
    blocks = sum(p.numel() for name, p in names.items() if name.startswith("layers."))
    assert blocks == layers * (matrices + 2 * width)
    total = sum(parameter.numel() for parameter in names.values())
    assert FAMILY.weights(config, LM).parameters() == total


def test_it_begins_with_the_weights_of_a_decoder() -> None:
    """Names are those of a decoder after an encoder, whose cross-attention it leaves out."""
    names = {name for rule in FAMILY.weights(SMALL, LM).rules for name in sources(rule.source)}
    both = FAMILY.weights(SMALL, "seq2seq-lm").rules
    known = {name.replace("{j}", "{i}") for rule in both for name in sources(rule.source)}
    decoder = {name for name in known if name.startswith("decoder.") and ".layer.1." not in name}
    assert names == {"shared.weight", *decoder}


def sources(source: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a rule's tensors."""
    return (source,) if isinstance(source, str) else source


@pytest.mark.long
def test_a_run_resumes_and_its_model_is_scored_and_not_written_for_the_hub(tmp_path: Path) -> None:
    options = {"objective": LM, "max_steps": 4, "save_steps": 2, "eval_steps": 4}
    whole = run_training(tmp_path / "whole", "t5", **options)
    assert_resumes_from(whole, tmp_path, 2)
    text = tmp_path / "text.txt"
    text.write_text("text\nThe cat sat on the mat.\nThe dog lay on the floor.\n")
    done = zoo("eval", whole / "model", "--task", "perplexity", "--eval", text)
    assert done.returncode == 0 and "perplexity" in done.stdout, done.stderr
    done = zoo("run", "generate", whole / "model", "The cat", "--max-new-tokens", 4)
    assert done.returncode == 0, done.stderr
    done = zoo("convert", whole / "model", "--to", "hub", "-o", tmp_path / "hub")
    assert done.returncode != 0
    assert "the Hub has no class for t5 with the head causal-lm" in done.stderr
    assert not (tmp_path / "hub").exists()

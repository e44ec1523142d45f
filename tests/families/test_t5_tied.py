"""T5 with one set of weights for encoder and decoder, as in table 2 of its paper."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch.utils.flop_counter import FlopCounterMode

from tests.families.further_version import FurtherVersionTests
from tests.families.test_t5 import FAMILY, LATER, SMALL, assert_equal_to_reference, random_model
from tests.warm import zoo
from zoo.checkpoint import load_checkpoint
from zoo.conformance.hf_reference import reference_model
from zoo.inference.load_model import load_model
from zoo_t5.config import SIZES, T5Config

TIED = replace(SMALL, tie_encoder_decoder=True, num_decoder_layers=None)
SEQ2SEQ = "seq2seq-lm"


@pytest.mark.long
class TestTied(FurtherVersionTests):
    family = FAMILY
    test_label_leaks = None  # objectives and masks are of every version

    @property
    def config(self) -> T5Config:
        return replace(SIZES["tiny"], tie_encoder_decoder=True)


@pytest.mark.parametrize(
    "changes", [{}, LATER, {**LATER, "series": "umt5"}], ids=["plain", "gated", "umt5"]
)
@pytest.mark.parametrize("head", [SEQ2SEQ, "none", "sequence-classification"])
def test_it_equals_a_model_with_two_equal_stacks(head: str, changes: dict[str, Any]) -> None:
    """The reference library has no tied T5; its T5 gets the encoder's weights twice."""
    if head != SEQ2SEQ:
        changes = {name: value for name, value in changes.items() if name != "output_table"}
    assert_equal_to_reference(replace(TIED, **changes), head)


def test_gradients_are_those_of_both_stacks() -> None:
    model: Any = random_model(TIED, SEQ2SEQ).double()
    reference = reference_model(FAMILY, TIED, SEQ2SEQ, model.state_dict()).double()
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randint(5, 100, (2, 3, 9), generator=generator)
    model.eval()(source, decoder_input_ids=target)["logits"].square().sum().backward()
    logits: Any = reference.eval()(input_ids=source, decoder_input_ids=target).logits
    logits.square().sum().backward()
    block = "block.1.layer"
    pairs = {
        "layers.1.attention.out.weight": f"{block}.0.SelfAttention.o.weight",
        "layers.1.attention_norm.weight": f"{block}.0.layer_norm.weight",
        "positions.weight": "block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "final_norm.weight": "final_layer_norm.weight",
    }
    for ours, theirs in pairs.items():
        encoder = reference.get_parameter(f"encoder.{theirs}").grad
        decoder = reference.get_parameter(f"decoder.{theirs}").grad
        assert encoder is not None and decoder is not None and decoder.abs().max() > 0
        difference = (model.get_parameter(ours).grad - encoder - decoder).abs().max()
        assert float(difference) < 1e-9 * float(encoder.abs().max()), ours


def parameters(config: T5Config) -> int:
    """Return the parameters of all blocks without cross-attention, which the paper leaves out."""
    return sum(
        parameter.numel()
        for name, parameter in FAMILY.model(config, SEQ2SEQ).named_parameters()
        if name.startswith(("layers.", "decoder.layers.")) and ".cross" not in name
    )


def flops(config: T5Config) -> int:
    """Return the operations of the blocks of a forward pass without cross-attention."""
    model: Any = FAMILY.model(config, SEQ2SEQ)
    for layer in model.decoder.layers:
        layer.cross.forward = lambda x, *_: torch.zeros_like(x)
        layer.cross.keys_and_values = lambda x: (x, x)
    tokens = torch.ones(1, 16, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model.hidden(tokens, None, tokens)
    return int(counter.get_total_flops())


def test_parameters_and_operations_have_the_ratios_of_the_paper() -> None:
    """Table 2: 2P and M, shared P and M, half of the layers P and M / 2."""
    base = replace(SMALL, num_layers=4, num_decoder_layers=None)
    half = replace(base, num_layers=2)
    tied = replace(base, tie_encoder_decoder=True)
    assert parameters(base) == 2 * parameters(tied) == 2 * parameters(half)
    assert flops(base) == flops(tied) == 2 * flops(half)


@pytest.mark.long
def test_files_for_the_hub_have_both_copies(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ["--max-steps", 2, "--max-seq-len", 24, "--batch-size", 4, "--set", "vocab_size=300"]
    options += ["--set", "eval_sequences=4"]
    for setting in ("tie_encoder_decoder=true", "hidden_size=32", "intermediate_size=48"):
        options += ["--set", f"config.{setting}"]
    done = zoo("pretrain", "t5", *options, "--set", "seq_len_warmup=null", "-o", run)
    assert done.returncode == 0, done.stderr
    done = zoo("convert", run / "model", "--to", "hub", "-o", tmp_path / "hub")
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "hub" / "config.json").read_text())
    assert config["tie_encoder_decoder"] is True
    done = zoo("convert", tmp_path / "hub", "-o", tmp_path / "back")
    assert done.returncode == 0, done.stderr
    before = load_model(load_checkpoint(run / "model")).state_dict()
    after = load_model(load_checkpoint(tmp_path / "back")).state_dict()
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []

    import transformers

    reference: Any = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "hub")
    ids = torch.arange(5, 15)[None]
    ours = load_model(load_checkpoint(run / "model")).eval()
    with torch.no_grad():
        expected = reference.eval()(input_ids=ids, decoder_input_ids=ids).logits
        logits = ours(ids, None, decoder_input_ids=ids)["logits"]
    assert float((logits - expected).abs().max()) < 1e-5 * float(expected.abs().max())


def test_stacks_of_two_depths_cannot_share() -> None:
    with pytest.raises(ValueError, match="tie_encoder_decoder needs 3 blocks in the decoder"):
        replace(TIED, num_decoder_layers=2)

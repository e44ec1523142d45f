"""Question answering by beam search, compared with the reference library."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace

from zoo.conformance.hf_reference import reference_model
from zoo.errors import UsageError
from zoo.exporting.graph.trace import trace
from zoo.families.random_inputs import randomize_weights
from zoo_xlnet import XLNet
from zoo_xlnet.config import SIZES

HEAD = "beam-question-answering"
CONFIG = replace(
    SIZES["tiny"], hidden_size=48, intermediate_size=40, dropout=0.0, start_n_top=3, end_n_top=4
)
DTYPES = pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
IDS = torch.randint(10, 1000, (2, 14), generator=torch.Generator().manual_seed(0))
TYPES = torch.tensor([0] * 5 + [1] * 8 + [2]).expand(2, -1)
OUTSIDE = torch.tensor([1] * 5 + [0] * 7 + [1, 0]).expand(2, -1)  # all but context and <cls>


def models(dtype: torch.dtype) -> tuple[Any, Any]:
    """Return our model and the reference's with the same weights."""
    model: Any = XLNet().model(CONFIG, HEAD).to(dtype).eval()
    randomize_weights(model)
    reference: Any = reference_model(XLNet(), CONFIG, HEAD, model.state_dict())
    encodings = reference.transformer.relative_positional_encoding
    reference.transformer.relative_positional_encoding = lambda *args, **options: encodings(
        *args, **options
    ).to(dtype)
    return model, reference


def test_an_export_is_refused() -> None:
    """No tolerance compares the positions of a graph with those of torch."""
    model, _ = models(torch.float32)
    inputs = {"input_ids": IDS, "attention_mask": IDS.new_ones(IDS.shape), "token_type_ids": TYPES}
    with pytest.raises(UsageError, match="start_top_index, end_top_index are indices"):
        trace(model, inputs, XLNet().onnx(CONFIG, HEAD), 18)


@DTYPES
def test_the_best_starts_and_ends_are_those_of_the_reference(
    dtype: torch.dtype, bound: float
) -> None:
    """With tokens that are in no answer, and other numbers of starts than of ends."""
    model, reference = models(dtype)
    with torch.no_grad():
        ours = model(IDS, None, TYPES, OUTSIDE)
        theirs = reference(IDS, token_type_ids=TYPES, p_mask=OUTSIDE.to(dtype))
    for name, tensor in ours.items():
        assert tensor.shape == theirs[name].shape
        assert float((tensor - theirs[name]).abs().max()) <= bound, name
    assert not OUTSIDE[0][ours["start_top_index"]].any()


@pytest.mark.parametrize("answerable", [True, False], ids=["spans", "with no answer"])
@DTYPES
def test_the_loss_and_its_gradients_are_those_of_the_reference(
    dtype: torch.dtype, bound: float, answerable: bool
) -> None:
    """With the positions of both tokens, and where given with that of ``<cls>``."""
    model, reference = models(dtype)
    labels = {
        "start_positions": torch.tensor([6, 13]),
        "end_positions": torch.tensor([8, 13]),
        "p_mask": OUTSIDE.to(dtype),
    }
    if not answerable:
        labels["cls_index"] = torch.tensor([13, 13])
        labels["is_impossible"] = torch.tensor([0, 1], dtype=dtype)
    ours = model.loss(IDS, None, TYPES, **labels)
    theirs = reference(IDS, token_type_ids=TYPES, **labels).loss
    assert abs(float((ours - theirs).detach())) <= bound * float(theirs.detach())
    ours.backward()
    theirs.backward()
    for mine, other in (
        (model.head.end_dense, reference.end_logits.dense_0),
        (model.head.start, reference.start_logits.dense),
        (model.embeddings.tokens, reference.transformer.word_embedding),
    ):
        scale = max(1.0, float(other.weight.grad.abs().max()))
        assert float((mine.weight.grad - other.weight.grad).abs().max()) <= bound * scale

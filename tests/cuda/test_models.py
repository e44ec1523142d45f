"""Models on a CUDA device, compared with the CPU: heads, losses of objectives, attention."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.training.cases import cases, dry
from tests.training.runs import small
from zoo.data.rng import generator
from zoo.errors import UsageError
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.nn import row_chunks
from zoo.nn.encoder import mask_value, packed_mask
from zoo.nn.heads import VocabularyProjection
from zoo.nn.kernels.attention import attend
from zoo.nn.kernels.packed_attention import masks_only, supports_offsets
from zoo.nn.packed_attention import DocumentOffsets
from zoo.objectives.losses.cross_entropy import summed_cross_entropy
from zoo.plugins import get_family, installed
from zoo.training.setup import pretrain_setup

pytestmark = pytest.mark.cuda
LENGTHS = (17, 9, 1)
# of the largest magnitude: a CUDA kernel adds in another order; bfloat16 has 8 bits of mantissa
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 6e-2}


def heads() -> Iterator[tuple[str, str]]:
    """Yield all pairs of a family and a head."""
    for name in installed():
        try:
            family = get_family(name)
        except UsageError:  # a plugin without families
            continue
        yield from ((name, head) for head in family.heads())


def relative_difference(result: Tensor, expected: Tensor) -> float:
    difference = (result.detach().cpu().double() - expected.detach().double()).abs().max()
    return float(difference / expected.detach().abs().max())


def without_padding(output: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the output at tokens of texts: kernels compute what they like at padding."""
    for name in ("decoder_attention_mask", "attention_mask"):
        mask = inputs.get(name)
        if mask is not None and output.shape[: mask.ndim] == mask.shape:
            return output[mask.bool()]
    return output


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("name", "head"), list(heads()))
def test_every_head_computes_what_it_does_on_a_cpu(
    name: str, head: str, dtype: torch.dtype, device: torch.device
) -> None:
    family = get_family(name)
    config: Any = family.sizes()["tiny"]
    model: Any = family.model(config, head).eval()
    randomize_weights(model)
    inputs = random_inputs(family.onnx(config, head), config, LENGTHS)
    with torch.inference_mode():
        expected = model(**inputs)
        model.to(device, dtype)
        outputs = model(**{key: value.to(device) for key, value in inputs.items()})
    assert outputs.keys() == expected.keys()
    far = {
        key: relative_difference(
            without_padding(outputs[key].cpu(), inputs), without_padding(expected[key], inputs)
        )
        for key in expected
    }
    assert {key: value for key, value in far.items() if not value < TOLERANCE[dtype]} == {}
    assert {value.dtype for value in outputs.values()} == {dtype}


@pytest.mark.usefixtures("shared_home")
@pytest.mark.parametrize("precision", TOLERANCE, ids=str)
@pytest.mark.parametrize(("family", "name"), sorted(cases()))
def test_losses_and_gradients_are_those_of_a_cpu(
    family: str, name: str, precision: torch.dtype, device: torch.device
) -> None:
    setup = pretrain_setup(dry(small(family, objective=name)))
    torch.manual_seed(0)
    model = setup.objective.model(setup.family, setup.model_config).eval()
    dataset = setup.objective.dataset(setup.corpus.split("train"), seed=0)
    batch = setup.objective.collate([dataset.example(k, generator(0, k)) for k in range(4)])
    half = precision == torch.bfloat16
    results = []
    for place in (torch.device("cpu"), device):
        model.to(place).zero_grad()
        tensors = {key: tensor.to(place) for key, tensor in batch.tensors.items()}
        with torch.autocast(place.type, torch.bfloat16, enabled=half and place == device):
            sums = setup.objective.compute_loss(model, tensors).sums
        torch.stack(list(sums.values())).sum().backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients]))
        results.append({**{term: float(sums[term].detach()) for term in sums}, "norm": float(norm)})
    expected, losses = results
    assert losses == pytest.approx(expected, rel=0.05 if half else 1e-4)


IDS = torch.tensor([[1] * 40 + [2] * 70 + [0] * 18, [1] * 128, [1] + [2] * 64 + [3] * 63])


@pytest.mark.parametrize("reach", [None, 5, 20])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("head_size", [64, 12])
def test_attention_by_offsets_is_that_by_a_mask(
    causal: bool, head_size: int, reach: int | None, device: torch.device
) -> None:
    draw = torch.Generator().manual_seed(0)
    shape = (*IDS.shape, 4, head_size)
    exact = [torch.randn(shape, generator=draw).transpose(1, 2).double() for _ in range(3)]
    q, k, v = operands = [x.to(device, torch.bfloat16).requires_grad_() for x in exact]
    weight = torch.randn(exact[0].shape, generator=draw)
    exact_q, exact_k, exact_v = (x.requires_grad_() for x in exact)
    mask = packed_mask(IDS, IDS, torch.float64, causal=causal)
    if reach is not None:
        place = torch.arange(IDS.shape[1])
        far = (place[:, None] - place).abs() > reach
        mask = mask.masked_fill(far, mask_value(torch.float64))
    expected = F.scaled_dot_product_attention(exact_q, exact_k, exact_v, attn_mask=mask)
    documents = DocumentOffsets.of(IDS.to(device), causal=causal)._replace(reach=reach)
    result = attend(q, k, v, documents)
    pairs = zip(
        (result, *torch.autograd.grad((result.cpu().float() * weight).sum(), operands)),
        (expected, *torch.autograd.grad((expected * weight).sum(), exact)),
        strict=True,
    )
    assert [d for d in (relative_difference(a, b) for a, b in pairs) if not d < 0.03] == []


@pytest.mark.parametrize(("name", "head"), [("bert", "masked-lm"), ("gpt", "causal-lm")])
def test_packed_rows_take_offsets_and_give_the_same_hidden_states(
    name: str, head: str, device: torch.device
) -> None:
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        pytest.skip("the kernel needs a CUDA device of compute capability 8.0")
    family = get_family(name)
    model: Any = family.model(family.sizes()["tiny"], head).eval().to(device)
    tokens, ids = torch.randint(5, 100, IDS.shape, device=device), IDS.to(device)
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
        assert supports_offsets(model.embeddings(tokens), ids)
        hidden = model.encode(tokens, document_ids=ids)
        with masks_only():
            expected = model.encode(tokens, document_ids=ids)
    real = ids != 0
    assert relative_difference(hidden[real].float(), expected[real].float().cpu()) < 0.03


@pytest.mark.parametrize("padding", ["none", "right", "within"])
def test_local_attention_of_long_rows_is_that_by_masks(padding: str, device: torch.device) -> None:
    """By offsets with a window, or by blocks where padding is within a text."""
    family = get_family("modernbert")
    model: Any = family.model(family.sizes()["tiny"], "none").eval().to(device, torch.bfloat16)
    tokens = torch.randint(5, 100, (3, 300), device=device)
    real = torch.ones_like(tokens)
    if padding != "none":
        real[1, 100 : 300 if padding == "right" else 130] = 0
    mask = None if padding == "none" else real
    with torch.inference_mode():
        hidden = model.encode(tokens, mask)
        with masks_only():
            expected = model.encode(tokens, mask)
    kept = real != 0
    assert relative_difference(hidden[kept].float(), expected[kept].float().cpu()) < 0.03


def test_dropout_of_attention_weights_keeps_their_mean(device: torch.device) -> None:
    values = torch.ones(1, 2, 128, 16, device=device, dtype=torch.bfloat16)
    documents = DocumentOffsets.of(IDS[1:2].to(device))
    outputs = attend(values, values, values, documents, dropout=0.5)
    assert outputs.float().std().item() > 0.02  # each weight of 1/128 is dropped, or doubled
    assert outputs.float().mean().item() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_cross_entropy_in_chunks(
    dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_chunks, "LOGITS_AT_ONCE", 100 * 1000)
    draw = torch.Generator().manual_seed(0)
    exact = [torch.randn(shape, generator=draw) for shape in ((450, 32), (1000, 32), (1000,))]
    labels = torch.randint(1000, (450,), generator=draw)
    tensors = [x.to(device).requires_grad_() for x in exact]
    references = [x.double().requires_grad_() for x in exact]
    expected = F.cross_entropy(F.linear(*references), labels, reduction="sum")
    with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        total, _ = summed_cross_entropy(VocabularyProjection(*tensors), labels.to(device))
    pairs = zip(
        (total, *torch.autograd.grad(total, tensors)),
        (expected, *torch.autograd.grad(expected, references)),
        strict=True,
    )
    bound = TOLERANCE[dtype]
    assert [d for d in (relative_difference(a, b) for a, b in pairs) if not d < bound] == []

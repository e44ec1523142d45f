"""Linear maps with 8-bit weights, for inference on CPUs."""

import functools
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

LARGEST_WEIGHT = 127
LARGEST_WEIGHT_IN_16_BITS = 63
STEPS = 255  # largest integer of an input; 0 is the lowest number of its row
SMALLEST = 1e-12  # range of a row that has a scale


class PackedMatrix(NamedTuple):
    """A matrix in 8 bits."""

    integers: Tensor  # the matrix, laid out by oneDNN
    scales: Tensor  # (out,), what an integer of each row stands for
    zeros: Tensor  # (out,), int64, all 0
    # (2, out): the sum of each row, for the lowest number of an input, and the bias
    offsets: Tensor


def int8_problem() -> str | None:
    """Return why torch has no 8-bit products on this machine, or ``None`` if it has."""
    built = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if built and hasattr(torch.ops.onednn, "qlinear_prepack"):
        return None
    return f"torch {torch.__version__} is built without oneDNN's 8-bit products"


@functools.cache
def largest_weight() -> int:
    """Return the largest magnitude of an 8-bit weight whose products are exact on this CPU."""
    inputs = torch.full((1, 2), STEPS, dtype=torch.uint8)
    weights = torch.full((1, 2), LARGEST_WEIGHT, dtype=torch.int8)
    ones = torch.ones(1)
    zeros = torch.zeros(1, dtype=torch.int64)
    packed = torch.ops.onednn.qlinear_prepack(weights, None)
    matrix = PackedMatrix(packed, ones, zeros, torch.zeros(2, 1))
    exact = multiply(inputs, matrix).item() == 2 * STEPS * LARGEST_WEIGHT
    return LARGEST_WEIGHT if exact else LARGEST_WEIGHT_IN_16_BITS


def pack_int8(weight: Tensor, bias: Tensor | None = None) -> PackedMatrix:
    """Quantize (out, in), float32, and lay it out for the CPU; the bias, (out,), stays float32."""
    # A row of the weights has a scale of its own, so that its largest magnitude is 127. So has a
    # row of the inputs, which are quantized as they come: what is computed for a token depends on
    # no other token of the batch. CPUs with AVX512-VNNI or AMX have instructions for products of
    # such integers, and a step of generation reads a quarter of the bytes. ``zoo bench --dtype
    # float32 --dtype int8`` compares both for a model.
    #
    # x86 CPUs without these instructions add two products in 16 bits (``vpmaddubsw``), where 255 *
    # 127 * 2 saturates: there, the largest magnitude of a weight is 63.
    scales = weight.abs().amax(dim=1).clamp_min(1e-12) / largest_weight()
    integers = (weight / scales[:, None]).round().to(torch.int8)
    zeros = torch.zeros(len(weight), dtype=torch.int64)
    sums = integers.sum(1).to(scales.dtype) * scales
    offsets = torch.stack((sums, torch.zeros_like(sums) if bias is None else bias.detach()))
    packed = torch.ops.onednn.qlinear_prepack(integers, None)
    return PackedMatrix(packed, scales, zeros, offsets)


def int8_linear(x: Tensor, matrix: PackedMatrix) -> Tensor:
    """Compute the product with a matrix in 8 bits: (..., in) to (..., out), float32."""
    # The integers of a row count from its lowest number, or from 0, to its largest. Outputs of
    # activations and norms are far from symmetric around 0, so that this is more exact than
    # integers of both signs: for all-MiniLM-L6-v2, the lowest cosine of a sentence is 0.996
    # instead of 0.987. With 0 in the range, the steps are not smaller than float32's, whose
    # rounding could otherwise lead to an integer over 255.
    #
    # In a row with a number that is not finite, no result is. Operators are few, as each takes
    # time of its own where rows are few, and all have vector instructions in torch, unlike
    # ``aminmax`` of a row and ``addcmul`` with a number for each row.
    rows = x.reshape(-1, x.shape[-1])
    lows = rows.amin(1, keepdim=True).clamp_max_(0)
    scales = rows.amax(1, keepdim=True).clamp_min_(0).sub_(lows).clamp_min_(SMALLEST).div_(STEPS)
    # rounded by the cast, which drops fractions: that saves passes over x; casts of floats to 16
    # bits have vector instructions, and those to 8 bits without a sign have none
    steps = rows.sub(lows.sub(scales, alpha=0.5)).mul_(scales.reciprocal())
    integers = steps.to(torch.int16).to(torch.uint8)
    products = multiply(integers, matrix).mul_(scales)
    products.addmm_(torch.cat((lows, torch.ones_like(lows)), 1), matrix.offsets)
    return products.view(*x.shape[:-1], -1)


def multiply(integers: Tensor, matrix: PackedMatrix, scale: float = 1.0, zero: int = 0) -> Tensor:
    """Return the product of the numbers that integers stand for, uint8, without the bias."""
    # the operator behind torch.compile's 8-bit products; it has no output scale and no activation
    return torch.ops.onednn.qlinear_pointwise(  # type: ignore[no-any-return]
        integers,
        scale,
        zero,
        matrix.integers,
        matrix.scales,
        matrix.zeros,
        None,
        1.0,
        0,
        torch.float32,
        "none",
        [],
        "",
    )


class Int8Linear(nn.Linear):
    """``nn.Linear`` with 8-bit products."""

    # Its float32 weight stays for readers of the parameter; one that is a view of a memory-mapped
    # file takes no memory while nobody reads it.

    packed: PackedMatrix

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        return int8_linear(x, self.packed)


def quantize_linear_maps(model: nn.Module) -> None:
    """Turn the linear maps of a model into ``Int8Linear``, in place."""
    for module in model.modules():
        if type(module) is nn.Linear:  # not a subclass, which may compute something else
            module.__class__ = Int8Linear
            cast(Int8Linear, module).packed = pack_int8(module.weight, module.bias)

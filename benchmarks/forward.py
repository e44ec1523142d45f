"""Forward pass at base size on a CPU, compared with transformers.

    python -m benchmarks.forward [--family bert ...] [--shape 8x128 ...] [--threads 2]

Both models have the same random weights and the same batch. In a batch of several texts, their
lengths are between half of the row and the whole row; a single text has no padding. The time from
token ids to the last hidden states is measured, of the encoder or of encoder and decoder. First,
outputs must agree to 1e-5 of their largest magnitude. Both run as for their users: transformers
with the fastest attention that it has for the family; the zoo's model as in a session, without a
mask if there is no padding. transformers has no ELMo.
"""

import argparse
import gc
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks._common import Timing, alternate, machine, table, versions
from zoo.conformance.comparison import TensorDifference
from zoo.conformance.hf_reference import named_outputs, reference_model
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.plugins import get_family

MODELS = {  # name -> family, size and head
    "bert": ("bert", "base", "none"),
    "roberta": ("roberta", "base", "none"),
    "albert": ("albert", "base-v2", "none"),
    "distilbert": ("distilbert", "base", "none"),
    "electra": ("electra", "base", "none"),
    "deberta": ("deberta", "base", "none"),
    "modernbert": ("modernbert", "base", "none"),
    "deberta-v3": ("deberta", "v3-base", "none"),
    "gpt": ("gpt", "small", "none"),
    "t5": ("t5", "base", "none"),
}
SHAPES = ("1x32", "8x128", "1x512")
AGREE = 1e-5
Outputs = dict[str, Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--shape", nargs="+", default=SHAPES, metavar="TEXTSxTOKENS")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    shapes = [tuple(map(int, shape.split("x"))) for shape in chosen.shape]
    rows = [row for name in chosen.family for row in measure(name, shapes, chosen.rounds)]
    print(f"{machine(chosen.threads)}. {versions('torch', 'transformers')}.\n")
    header = ("", "texts x tokens", "zoo ms", "transformers ms", "zoo is faster by", "difference")
    print(table(header, rows))


def measure(name: str, shapes: list[tuple[int, ...]], rounds: int) -> list[list[str]]:
    """Return a row of the table for each shape of batch."""
    family_name, size, head = MODELS[name]
    family = get_family(family_name)
    config = family.sizes()[size]
    with init_empty_weights():
        model = family.model(config, head)
    model = model.to_empty(device="cpu").eval().requires_grad_(False)
    randomize_weights(model)
    for parameter in model.parameters():
        parameter.mul_(0.5)  # without scaled scores, attention would saturate
    getattr(model, "optimize_for_inference", bool)()  # as in a session
    reference = reference_model(family, config, head, model.state_dict())
    if getattr(reference, "_supports_sdpa", False):
        reference.set_attn_implementation("sdpa")  # type: ignore[operator]
    rows = []
    for texts, tokens in shapes:
        lengths = [tokens - row * tokens // (2 * texts) for row in range(texts)]
        batch = random_inputs(family.onnx(config, head), config, lengths)
        ours, theirs = contenders(model, reference, batch)
        worst = difference(ours(), theirs())
        if not worst <= AGREE:
            raise SystemExit(f"{name}: the outputs differ by {worst:.1e}; there is nothing to time")
        timings = alternate({"zoo": ours, "transformers": theirs}, rounds=rounds, warm_up=2)
        rows.append(row(f"{family.name} {size}", f"{texts} x {tokens}", timings, worst))
    del model, reference
    gc.collect()
    return rows


def contenders(
    model: nn.Module, reference: nn.Module, batch: Outputs
) -> tuple[Callable[[], Outputs], Callable[[], Outputs]]:
    """Return functions that run a batch through each of the models."""
    spared = dict(batch)
    if batch["attention_mask"].all():
        del spared["attention_mask"]

    @torch.inference_mode()
    def ours() -> Outputs:
        return model(**spared)  # type: ignore[no-any-return]

    @torch.inference_mode()
    def theirs() -> Outputs:
        return reference(**batch, return_dict=True)  # type: ignore[no-any-return]

    return ours, theirs


def difference(ours: Outputs, theirs: Outputs) -> float:
    """Return the largest difference between outputs, relative to their largest magnitude."""
    references = named_outputs(theirs, list(ours))
    return max(
        TensorDifference.between(ours[name], reference).relative
        for name, reference in references.items()
    )


def row(what: str, shape: str, timings: dict[str, Timing], worst: float) -> list[str]:
    """Return a row of the table."""
    zoo, transformers = timings["zoo"].median, timings["transformers"].median
    times = (f"{zoo * 1e3:.1f}", f"{transformers * 1e3:.1f}", f"{transformers / zoo:.2f}x")
    return [what, shape, *times, f"{worst:.0e}"]


if __name__ == "__main__":
    main()

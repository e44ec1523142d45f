"""Greedy generation at base size, compared with transformers.

    python -m benchmarks.generate [--family t5 --size base] [--batch 1 4 8] [--prompt 24 512]

Both models have the same random weights, and the same prompts or sources. Tokens are compared
before times are measured. No row ends early: each generates all its tokens.
"""

import argparse
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks._common import alternate, compare, machine, versions
from zoo.conformance.hf_reference import reference_model
from zoo.families.base import Family
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import pad
from zoo.inference.generation.generate import generate
from zoo.nn.encoder_decoder import CrossAttention
from zoo.nn.layers.init import scale_rows_
from zoo.nn.transformer import SelfAttention
from zoo.plugins import get_family

Generate = Callable[[], list[list[int]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", default="gpt")
    parser.add_argument("--size", default="small")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument(
        "--prompt", type=int, nargs="+", default=[24], help="tokens of the longest prompt"
    )
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--num-beams", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    family = get_family(chosen.family)
    config = family.sizes()[chosen.size]
    head, side = sides(family)
    model, reference = pair(family, config, head)
    print(machine(chosen.threads), versions("torch", "transformers"), sep="\n")
    print(f"{chosen}\n")
    for batch, prompt in itertools.product(chosen.batch, chosen.prompt):
        rows = prompts(batch, prompt, config.vocab_size)
        inputs = pad(rows, side=side, pad_id=0, device="cpu")
        settings = GenerationConfig(max_new_tokens=chosen.new_tokens, num_beams=chosen.num_beams)
        ours, theirs = contenders(model, reference, inputs, settings)
        if ours() != theirs():
            raise SystemExit("the tokens differ; there is nothing to time")
        timings = alternate({"zoo": ours, "transformers": theirs}, rounds=chosen.rounds)
        speed = batch * chosen.new_tokens / timings["zoo"].median
        print(f"batch {batch}, prompt {prompt}: {speed:.1f} tokens/s\n")
        print(f"{compare(timings, 'zoo')}\n", flush=True)


def sides(family: Family) -> tuple[str, str]:
    """Return the generative head of a family, and the padding side of its prompts or sources."""
    return ("causal-lm", "left") if "causal-lm" in family.heads() else ("seq2seq-lm", "right")


def pair(family: Family, config: Any, head: str) -> tuple[Any, Any]:
    """Return the zoo's model and that of transformers, with the same weights."""
    model: Any = family.model(config, head).eval().requires_grad_(False)
    spread(model)
    reference: Any = reference_model(family, config, head, model.state_dict())
    reference.set_attn_implementation("sdpa")
    getattr(model, "optimize_for_inference", bool)()  # as in a session
    return model, reference


def contenders(
    model: Any, reference: Any, inputs: Mapping[str, Tensor], settings: GenerationConfig
) -> tuple[Generate, Generate]:
    """Return functions that generate the new tokens of each row with each of the models."""
    count = settings.longest
    mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))

    def ours() -> list[list[int]]:
        return generate(model, inputs, settings)

    def theirs() -> list[list[int]]:
        with torch.inference_mode():
            generated = reference.generate(
                input_ids=inputs["input_ids"],
                attention_mask=mask,
                max_new_tokens=count,
                min_new_tokens=count,
                num_beams=settings.num_beams,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
            )
        return generated[:, -count:].tolist()  # type: ignore[no-any-return]

    return ours, theirs


def spread(model: nn.Module) -> None:
    """Initialize weights so that the best token is distinct at each step and varies over steps.

    Attention is not so sharp that rounding errors grow: queries have the scale that scores lack.
    Relative positions select tokens, since without others a token would be followed by itself.
    """
    generator = torch.Generator().manual_seed(0)
    attention = [m for m in model.modules() if isinstance(m, SelfAttention | CrossAttention)]
    heads = {module.heads[0] for module in attention}
    for parameter in model.parameters():
        scale = 0.05 if parameter.dim() == 1 else 1.2 * parameter.shape[-1] ** -0.5
        if parameter.dim() == 2 and parameter.shape[-1] in heads:  # of relative positions
            scale = 5.0
        noise = torch.empty(parameter.shape).normal_(generator=generator)
        parameter.copy_(noise * scale + (parameter.data == 1) * (parameter.dim() == 1))
    for module in attention:
        count, size = module.heads
        projection = module.q if isinstance(module, CrossAttention) else module.qkv
        scale_rows_(projection.weight, count * size, size**-0.5 / (module.scale or size**-0.5))


def prompts(count: int, longest: int, vocabulary: int) -> Sequence[Sequence[int]]:
    """Return token ids of several lengths, the first of length ``longest``."""
    generator = torch.Generator().manual_seed(1)
    lengths = [max(1, longest - 3 * row % longest) for row in range(count)]
    return [torch.randint(1, vocabulary, (n,), generator=generator).tolist() for n in lengths]


if __name__ == "__main__":
    main()

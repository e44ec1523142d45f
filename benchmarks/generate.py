"""Greedy generation at base size, side by side with the reference library.

    python -m benchmarks.generate --threads 2 --batch 1 --new-tokens 32

Both continue the same prompts with the same random weights; the tokens are compared before
anything is timed. No text ends early: every row gets all its tokens.
"""

import argparse
from collections.abc import Sequence

import torch
from torch import nn

from benchmarks._common import alternate, compare, machine, versions
from zoo.generation.decoder import pad
from zoo.generation.search import generate
from zoo.generation.settings import Settings
from zoo.plugins import get_family
from zoo.testing.oracle import reference_model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", default="gpt")
    parser.add_argument("--size", default="small")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=24, help="tokens of the longest prompt")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)

    family = get_family(chosen.family)
    config = family.sizes()[chosen.size]
    model = family.model(config, "causal-lm").eval().requires_grad_(False)
    spread(model)
    reference = reference_model(family, config, "causal-lm", model.state_dict())
    reference.set_attn_implementation("sdpa")  # type: ignore[operator]
    model.quicken()  # type: ignore[operator]  # as a session does
    rows = prompts(chosen.batch, chosen.prompt, config.vocab_size)
    inputs = pad(rows, side="left", pad_id=0, device="cpu")
    settings = Settings(max_new_tokens=chosen.new_tokens, beams=chosen.beams)
    mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))

    def ours() -> list[list[int]]:
        return generate(model, inputs, settings)  # type: ignore[arg-type]

    def theirs() -> list[list[int]]:
        with torch.inference_mode():
            found = reference.generate(  # type: ignore[operator]
                input_ids=inputs["input_ids"],
                attention_mask=mask,
                max_new_tokens=chosen.new_tokens,
                min_new_tokens=chosen.new_tokens,
                num_beams=chosen.beams,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
            )
        return found[:, inputs["input_ids"].shape[1] :].tolist()  # type: ignore[no-any-return]

    if ours() != theirs():
        raise SystemExit("the tokens differ; there is nothing to time")
    print(machine(chosen.threads), versions("torch", "transformers"), sep="\n")
    print(f"{family.name} {chosen.size}: {chosen}\n")
    timings = alternate({"zoo": ours, "transformers": theirs}, rounds=chosen.rounds)
    print(compare(timings, "zoo"))
    tokens = chosen.batch * chosen.new_tokens
    print(f"\nzoo: {tokens / timings['zoo'].median:.1f} tokens/s")


def spread(model: nn.Module) -> None:
    """Draw weights that lead to one clear choice at each step, and not always to the same."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        scale = 0.05 if parameter.dim() == 1 else 1.2 * parameter.shape[-1] ** -0.5
        noise = torch.empty(parameter.shape).normal_(generator=generator)
        parameter.copy_(noise * scale + (parameter.data == 1) * (parameter.dim() == 1))


def prompts(count: int, longest: int, vocabulary: int) -> Sequence[Sequence[int]]:
    """Return token ids of several lengths, the first as long as may be."""
    generator = torch.Generator().manual_seed(1)
    lengths = [max(1, longest - 3 * row % longest) for row in range(count)]
    return [torch.randint(1, vocabulary, (n,), generator=generator).tolist() for n in lengths]


if __name__ == "__main__":
    main()

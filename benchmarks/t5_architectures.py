"""Architectures and objectives of T5's table 2, in small and at equal compute.

    python -m benchmarks.t5_architectures FOLDER [--seeds 3] [--steps 60]

Raffel et al. 2020, arXiv:1910.10683, section 3.2: an encoder-decoder, one that shares its weights,
one of half the layers, a language model and a prefix language model, each trained to denoise or to
continue a text. FOLDER has the folders ``train`` and ``validation`` with text files. All models see
the same texts in the same order. A model of one stack reads source and target as one row; the mask
of a prefix language model lets all tokens see the source. The paper fine-tunes on tasks; here, the
score is the loss of the tokens of held-out targets, which is comparable within an objective.

A language model that is trained to continue texts also learns from the source (section 3.2.3).
Parameters and operations are counted in all blocks, without cross-attention, which the paper leaves
out. The unit is the language model for parameters, and the encoder-decoder for operations.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks._common import machine, table, versions
from zoo.data.rng import generator
from zoo.nn.encoder_decoder import CrossAttention
from zoo.objectives.denoising import SpanCorruption
from zoo.objectives.examples.vocabulary import TokenizerView
from zoo.tokenizers.info import TokenizerInfo
from zoo_t5.backbone import T5Backbone
from zoo_t5.config import T5Config
from zoo_t5.model import build

TOKENS = 64  # Tokens of a text.
ROWS = 8  # Texts of a step.
VOCABULARY = 2048
SENTINELS = 32
PAD, END, UNKNOWN = range(3)
VALIDATION_STEPS = 10
LAYERS = 4
CONFIG = T5Config(
    vocab_size=VOCABULARY,
    hidden_size=96,
    head_size=24,
    intermediate_size=384,
    num_layers=LAYERS,
    num_heads=4,
    dropout=0.0,
)
LEARNING_RATE = 2e-3
IGNORED = -100

Pair = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]  # Source and target of a text.


class OneStack(T5Backbone):
    """A language model of the blocks of an encoder, without cross-attention.

    Args:
        config: configuration of the encoder.
        sees_source: whether all tokens see the source, as in a prefix language model.
    """

    def __init__(self, config: T5Config, *, sees_source: bool) -> None:
        super().__init__(config)
        self.sees_source = sees_source

    def read(self, source: Tensor, decoder_inputs: Tensor) -> Tensor:
        """Return the hidden states of both, (rows, tokens, hidden)."""
        ids = torch.cat([source, decoder_inputs], dim=1)
        is_token = ids != PAD
        is_token[:, source.shape[1]] = True  # The decoder begins with the padding token.
        length = ids.shape[1]
        may_see = torch.ones(length, length, dtype=torch.bool).tril()
        if self.sees_source:
            may_see[:, : source.shape[1]] = True
        x = self.embeddings(ids)
        mask = torch.zeros(len(ids), 1, length, length).masked_fill(
            ~(may_see & is_token[:, None, None]), torch.finfo(torch.float32).min
        )
        return self.run(x, self.biases(x, mask))


@dataclass(frozen=True)
class Architecture:
    """A row of the paper's table.

    Attributes:
        name: as in the paper.
        config: changes of the configuration.
        sees_source: see ``OneStack``; ``None`` for an encoder-decoder.
    """

    name: str
    config: T5Config
    sees_source: bool | None = None

    def model(self) -> nn.Module:
        """Return a model with new weights."""
        model = build(self.config, "seq2seq-lm")
        if self.sees_source is None:
            return model
        stack = OneStack(self.config, sees_source=self.sees_source)
        # The stack has no decoder.
        weights = model.state_dict()
        stack.load_state_dict({name: weights[name] for name in stack.state_dict()})
        return stack


ARCHITECTURES = (
    Architecture("encoder-decoder", CONFIG),
    Architecture("encoder-decoder, shared", replace(CONFIG, tie_encoder_decoder=True)),
    Architecture("encoder-decoder, half of the layers", replace(CONFIG, num_layers=LAYERS // 2)),
    Architecture("language model", CONFIG, sees_source=False),
    Architecture("prefix language model", CONFIG, sees_source=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    begin = time.process_time()
    data = Texts(options.folder)
    rows = []
    for objective in ("denoising", "language modelling"):
        for architecture in ARCHITECTURES:
            losses = [
                train(architecture, data, objective, seed, options.steps)
                for seed in range(options.seeds)
            ]
            row = (
                architecture.name,
                objective,
                f"{parameters(architecture):.2f} P",
                f"{operations(architecture):.2f} M",
                f"{statistics.median(losses):.3f}",
                f"{min(losses):.3f} to {max(losses):.3f}",
            )
            rows.append(row)
            print(" | ".join(row), file=sys.stderr, flush=True)
    header = ("architecture", "objective", "parameters", "operations", "loss (median)", "range")
    print(table(header, rows))
    seconds = time.process_time() - begin
    print(f"\n{options.steps} steps, {options.seeds} seeds, {seconds:.0f} s of CPU time,")
    print(f"{machine(1)}; {versions('torch')}")


class Texts:
    """Texts of equal length, and the sources and targets that an objective makes of them."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

        paths = {name: sorted(map(str, (folder / name).iterdir())) for name in SPLITS}
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        special = ["<pad>", "</s>", "<unk>"]
        special += [f"<extra_id_{number}>" for number in range(SENTINELS)]
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=special, show_progress=False
        )
        tokenizer.train(paths["train"], trainer)
        tokenizer.post_processor = processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", END)]
        )
        roles = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
        vocabulary = TokenizerView(tokenizer, TokenizerInfo(special=roles), VOCABULARY)
        self.denoising = SpanCorruption(vocabulary, CONFIG, TOKENS)
        self.texts = {}
        for name in SPLITS:
            text = "\n".join(Path(path).read_text() for path in paths[name])
            ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids)
            self.texts[name] = ids[: len(ids) // TOKENS * TOKENS].reshape(-1, TOKENS)

    def batches(self, split: str, objective: str, seed: int, steps: int) -> Iterator[list[Pair]]:
        """Yield the pairs of each step, the same for all architectures."""
        texts = self.texts[split]
        for step in range(steps):
            rng = generator(seed, split, step)
            batch = texts[rng.integers(len(texts), size=ROWS)]
            if objective == "denoising":
                yield list(self.denoising.source_target_pairs(list(batch), rng))
            else:
                cut = int(rng.integers(1, TOKENS))
                yield [(text[:cut], text[cut:]) for text in batch]


SPLITS = ("train", "validation")


def stack(texts: list[np.ndarray[Any, Any]], padding: int) -> Tensor:
    """Return texts as rows with padding at the end, (rows, tokens), int64."""
    rows = np.full((len(texts), max(map(len, texts))), padding)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = text
    return torch.from_numpy(rows)


def losses(model: Any, pairs: list[Pair], *, with_source: bool) -> Tensor:
    """Return the mean loss of the tokens of the targets, and of the sources if asked for."""
    source = stack([source for source, _ in pairs], PAD)
    labels = stack([np.append(target, END) for _, target in pairs], IGNORED)
    inputs = stack([np.append(PAD, target) for _, target in pairs], PAD)
    if isinstance(model, OneStack):
        hidden = model.read(source, inputs)
        # The first token of the target is predicted from the decoder's first input.
        of_source = source[:, 1:].masked_fill(source[:, 1:] == PAD, IGNORED)
        if not with_source:
            of_source = torch.full_like(of_source, IGNORED)
        no_label = torch.full_like(labels[:, :1], IGNORED)
        labels = torch.cat([of_source, no_label, labels], dim=1)
        scale = model.config.hidden_size**-0.5
        logits = F.linear(hidden * scale, model.embeddings.tokens.weight)
    else:
        mask = (source != PAD).long()
        logits = model(source, mask, decoder_input_ids=inputs)["logits"]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def train(architecture: Architecture, data: Texts, objective: str, seed: int, steps: int) -> float:
    """Train a model, and return its loss on held-out targets."""
    torch.manual_seed(seed)
    model = architecture.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    with_source = architecture.sees_source is False and objective != "denoising"
    for step, pairs in enumerate(data.batches("train", objective, seed, steps)):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / 20) * (1 - step / steps)
        optimizer.zero_grad()
        losses(model, pairs, with_source=with_source).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        values = [
            float(losses(model, pairs, with_source=False))
            for pairs in data.batches("validation", objective, 0, VALIDATION_STEPS)
        ]
    return statistics.fmean(values)


def is_of_block(name: str) -> bool:
    """Return whether a parameter counts: the paper leaves out embeddings and cross-attention."""
    return name.startswith(("layers.", "decoder.layers.")) and ".cross" not in name


def parameters(architecture: Architecture) -> float:
    """Return how many times the parameters of the language model the blocks have."""

    def count(model: nn.Module) -> int:
        return sum(p.numel() for name, p in model.named_parameters() if is_of_block(name))

    return count(architecture.model()) / count(ARCHITECTURES[3].model())


def operations(architecture: Architecture) -> float:
    """Return how many times the operations of an encoder-decoder a pass takes, without logits."""

    def count(model: Any) -> int:
        for module in model.modules():
            if isinstance(module, CrossAttention):
                module.forward = lambda x, *_: torch.zeros_like(x)  # type: ignore[method-assign]
        tokens = torch.full((1, TOKENS // 2), END)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            if isinstance(model, OneStack):
                model.read(tokens, tokens)
            else:
                model.hidden(tokens, None, tokens)
        return int(counter.get_total_flops())

    return count(architecture.model()) / count(ARCHITECTURES[0].model())


if __name__ == "__main__":
    main()

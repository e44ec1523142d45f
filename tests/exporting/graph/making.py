"""Small models of the families, and their graphs."""

from pathlib import Path

import onnx_ir as ir
import torch
from msgspec.structs import replace
from torch import Tensor

from tests.exporter import trace_once
from tests.inference.generation import conftest as gpt
from tests.inference.generation.making import CONFIGS as T5_CONFIGS
from tests.inference.making import make_checkpoint, store
from tests.once import written_once
from zoo.checkpoint import Checkpoint
from zoo.exporting.graph.opsets import DEFAULT_OPSET
from zoo.exporting.graph.parts import GraphToTrace, with_cache
from zoo.families.random_inputs import random_inputs
from zoo.inference.generation.decoder import pad
from zoo.inference.load_model import load_model
from zoo.nn.generation import GenerationMixin
from zoo.plugins import get_family
from zoo_gpt import Gpt
from zoo_t5 import T5


def made(name: str, path: Path, layers: int = 2) -> Checkpoint:
    """Write a small model whose greedy outputs vary with the prompt."""
    if name in T5_CONFIGS:
        config = replace(T5_CONFIGS[name], num_layers=1, num_decoder_layers=layers)
        model = T5().model(config, "seq2seq-lm")
        gpt.sharp(model, 2)
        with torch.no_grad():
            model.get_parameter("decoder.final_norm.weight").mul_(12 if name == "plain" else 1)
        return store(path, model, T5(), config, "seq2seq-lm")
    shape = replace(
        gpt.SMALL, norm="pre" if name == "second" else "post", num_layers=layers, max_positions=96
    )
    model = Gpt().model(shape, "causal-lm")
    gpt.sharp(model, 4)
    return store(path, model, Gpt(), shape, "causal-lm")


def batch(checkpoint: Checkpoint, count: int = 5) -> dict[str, Tensor]:
    side = "left" if checkpoint.family.name == "gpt" else "right"
    return pad(gpt.prompts(count), side=side, pad_id=0, device="cpu")


LAYERS = 2
CACHED = ("second", "plain")  # a GPT and a T5, see ``made``


def parts(checkpoint: Checkpoint) -> list[GraphToTrace]:
    model = load_model(checkpoint, torch.float32)
    spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
    example = random_inputs(spec, checkpoint.config, (8, 5))
    if isinstance(model, GenerationMixin):
        return with_cache(model, spec, example)
    return [GraphToTrace("graph", model, example, spec)]


def traced(name: str) -> list[ir.Model]:
    """Return the graphs of a family as they are before fusion; of a decoder, it is the last."""

    def write(folder: Path) -> None:
        if name in CACHED:
            checkpoint = made(name, folder / "model", layers=LAYERS)
        else:
            family = get_family(name)
            checkpoint = make_checkpoint(folder / "model", family=family, num_layers=LAYERS)
        for number, part in enumerate(parts(checkpoint)):
            program = trace_once(part.module, part.example, part.spec, DEFAULT_OPSET)
            ir.save(program.model, folder / f"{number}.onnx")

    return [ir.load(path) for path in sorted(written_once(f"traced-{name}", write).glob("*.onnx"))]

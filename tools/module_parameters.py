"""Write docs/module-parameters.md: the parameters of the modules from which families are built.

``python -m tools.module_parameters`` writes the page, and ``--check`` compares it. The names and
shapes are read from modules that are built; a new module is a line of ``modules``.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import nn

from zoo.families.encoder import EncoderConfig
from zoo.families.seq2seq import Seq2SeqConfig
from zoo.nn.decoder import CausalModelFactory
from zoo.nn.encoder_decoder import (
    PostNormDecoderBlock,
    Seq2SeqFactory,
    make_cross_attention,
    make_decoder_blocks,
)
from zoo.nn.encoder_factory import (
    ModelFactory,
    make_blocks,
    make_embeddings,
    make_mlm_head,
    make_self_attention,
)
from zoo.nn.heads import DenseHead, LinearHead, Pooler
from zoo.nn.layers.convolution import TokenConvolution
from zoo.nn.layers.highway import Highway
from zoo.nn.layers.scalar_mix import ScalarMix
from zoo.nn.transformer import FeedForward, SwiGLU

PAGE = Path(__file__).parents[1] / "docs" / "module-parameters.md"
INTRODUCTION = """\
# Parameters of the modules

The names that the weight rules of a family fill: the parameters of the models that the factories
build, and of the modules of `zoo.nn`. [Add a family](add-a-family.md) explains the rules.
`python -m tools.module_parameters` writes this page from modules that it builds.

`{i}` is the index of a block. `{p}` is `weight` or `bias`: the shape is the weight's, and the bias
has its first dimension. Shapes name fields of the configuration, or arguments of the module;
`labels` is the number of labels.
"""
MODELS = """\
## Models

A model has the parameters of the backbone and of its head, unless the family overrides a part.
"""
UNTIED = "without `tie_embeddings`"
MODULES = """\
## Modules

In a model, these names follow the name of the attribute that holds the module, such as
`layers.{i}.attention.` for the attention of a block.
"""

# Sizes that occur once each, so that a number tells which field a shape has.
HEADS = 6
SHARED_HEADS = 2
HEAD_SIZE = 101
WIDTH = HEADS * HEAD_SIZE
INNER = 2503
DECODER_INNER = 3001
VOCABULARY = 50021
POSITIONS = 4001
TYPES = 7
LABELS = 11
PROJECTED = 409
OUTPUTS = 13
LAYERS = 16
KERNEL = 19
SIZES = {
    1: "1",
    2: "2",
    WIDTH: "hidden_size",
    2 * WIDTH: "2 * hidden_size",
    3 * WIDTH: "3 * hidden_size",
    (HEADS + 2 * SHARED_HEADS) * HEAD_SIZE: "(num_heads + 2 * num_kv_heads) * head_size",
    INNER: "intermediate_size",
    2 * INNER: "2 * intermediate_size",
    DECODER_INNER: "decoder_ffn_dim",
    VOCABULARY: "vocab_size",
    POSITIONS: "max_positions",
    TYPES: "type_vocab_size",
    LABELS: "labels",
    PROJECTED: "project_to",
    OUTPUTS: "outputs",
    LAYERS + 1: "num_layers + 1",
    KERNEL: "kernel_size",
}


class DecoderConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration of a decoder, which has no segment types."""

    layer_norm_eps: float = 1e-12


class Config(DecoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration with all fields that the functions of ``zoo.nn.encoder_factory`` read."""

    type_vocab_size: int = TYPES
    pooler: bool = False


SHAPES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_layers": 2,
    "num_heads": HEADS,
    "intermediate_size": INNER,
    "max_positions": POSITIONS,
    "labels": tuple(f"LABEL_{number}" for number in range(LABELS)),
}
CONFIG = Config(**SHAPES)
DECODER_CONFIG = DecoderConfig(**SHAPES)
SEQ2SEQ_CONFIG = Seq2SeqConfig(
    vocab_size=VOCABULARY,
    hidden_size=WIDTH,
    num_layers=2,
    num_heads=HEADS,
    intermediate_size=INNER,
    decoder_layers=2,
    decoder_attention_heads=HEADS,
    decoder_ffn_dim=DECODER_INNER,
    max_positions=POSITIONS,
    labels=CONFIG.labels,
)


class Models(NamedTuple):
    """The models that a factory builds."""

    title: str
    factory: type[ModelFactory]
    config: EncoderConfig | Seq2SeqConfig
    note: str


MODELS_OF_FACTORIES = (
    Models(
        "Encoders: `ModelFactory` of `zoo.nn.encoder_factory`",
        ModelFactory,
        CONFIG,
        "The backbone has the pooler as well if the field `pooler` is true.",
    ),
    Models(
        "Decoders: `CausalModelFactory` of `zoo.nn.decoder`",
        CausalModelFactory,
        DECODER_CONFIG,
        "By default, blocks are pre-norm and positions learned; a family names other parts.",
    ),
    Models(
        "Encoder-decoders: `Seq2SeqFactory` of `zoo.nn.encoder_decoder`",
        Seq2SeqFactory,
        SEQ2SEQ_CONFIG,
        "With `final_norm`, there are `final_norm.{p}` and `decoder.final_norm.{p}`. With the\n"
        "field `logits_bias`, `seq2seq-lm` has the buffer `logits_bias`, `(1, vocab_size)`.",
    ),
)


class Module(NamedTuple):
    """A module, or modules with the same parameters."""

    title: str
    module: nn.Module
    note: str = ""


def modules() -> Iterator[Module]:
    """Yield the modules in the order of the page."""
    yield Module(
        "`Embeddings` of `zoo.nn.transformer`",
        make_embeddings(CONFIG, project_to=PROJECTED),
        "Arguments decide which parts there are: `vocab_size`, `max_positions`,\n"
        "`type_vocab_size`, `layer_norm_eps` and `project_to`. Positions that are not trained are\n"
        "a buffer.",
    )
    yield Module(
        "`SelfAttention` of `zoo.nn.transformer`",
        make_self_attention(CONFIG),
        "The rows of `qkv` are those of the queries, then of the keys, then of the values.",
    )
    yield Module(
        "`SelfAttention` with `num_kv_heads`",
        make_self_attention(CONFIG, num_kv_heads=SHARED_HEADS),
    )
    yield Module(
        "`CrossAttention` of `zoo.nn.encoder_decoder`",
        make_cross_attention(CONFIG),
        "The rows of `kv` are those of the keys, then of the values.",
    )
    yield Module(
        "`FeedForward` of `zoo.nn.transformer`",
        FeedForward(hidden_size=WIDTH, intermediate_size=INNER, act="gelu"),
    )
    yield Module(
        "`GatedFeedForward` of `zoo.nn.transformer`",
        SwiGLU(hidden_size=WIDTH, intermediate_size=INNER),
        "`GLU`, `Bilinear`, `ReGLU`, `GEGLU` and `SwiGLU` have the same. The first half of the\n"
        "rows of `up` is the input of the activation function.",
    )
    (block, *_) = make_blocks(CONFIG)
    yield Module(
        "`PostNormBlock`, `PreNormBlock` and `ParallelBlock` of `zoo.nn.transformer`",
        block,
        "`norm_type=RMSNorm`, of `zoo.nn.layers.norms`, has no biases.",
    )
    (decoder_block, *_) = make_decoder_blocks(SEQ2SEQ_CONFIG, PostNormDecoderBlock)
    yield Module(
        "`PostNormDecoderBlock` and `PreNormDecoderBlock` of `zoo.nn.encoder_decoder`",
        decoder_block,
    )
    yield Module("`Pooler` of `zoo.nn.heads`", Pooler(WIDTH))
    yield Module("`LinearHead` of `zoo.nn.heads`", LinearHead(WIDTH, OUTPUTS))
    yield Module("`DenseHead` of `zoo.nn.heads`", DenseHead(WIDTH, OUTPUTS, act="tanh"))
    yield Module(
        "`MLMHead` of `zoo.nn.heads`",
        make_mlm_head(msgspec.structs.replace(CONFIG, tie_embeddings=False)),
        "`decoder` is there if `tied` is false.",
    )
    yield Module(
        "`ScalarMix` of `zoo.nn.layers.scalar_mix`",
        ScalarMix(LAYERS + 1),
        "A model whose configuration has `mix` has it as `mix`.",
    )
    yield Module("`Highway` of `zoo.nn.layers.highway`", Highway(WIDTH))
    yield Module(
        "`TokenConvolution` of `zoo.nn.layers.convolution`", TokenConvolution(WIDTH, KERNEL)
    )


def parameters(module: nn.Module) -> dict[str, str]:
    """Return name -> shape of the parameters; those of blocks, and weight and bias, are one."""
    shapes: dict[str, str] = {}
    names = [name for name, _ in module.named_parameters()]
    for name, tensor in module.named_parameters():
        parent, _, last = name.rpartition(".")
        prefix = f"{parent}." if parent else ""
        if last == "bias" and f"{prefix}weight" in names:
            continue
        if last == "weight" and f"{prefix}bias" in names:
            last = "{p}"
        template = re.sub(r"(?<=layers\.)\d+", "{i}", prefix + last)
        shape = ", ".join(SIZES[size] for size in tensor.shape)
        shapes[template] = f"({shape}{',' * (tensor.dim() == 1)})"
    return shapes


def model_tables() -> Iterator[str]:
    """Yield the lines of the tables of models."""
    for title, factory_type, config, note in MODELS_OF_FACTORIES:
        yield from ("", f"### {title}", "", note, "")
        yield from ("| head | parameter | shape |", "|---|---|---|")
        untied_config = msgspec.structs.replace(config, tie_embeddings=False)
        factory = factory_type(config)
        untied_factory = factory_type(untied_config)
        backbone = parameters(factory.build("none"))
        untied_backbone = parameters(untied_factory.build("none"))
        for name, shape in untied_backbone.items():
            where = "the backbone" if name in backbone else f"the backbone {UNTIED}"
            yield f"| {where} | `{name}` | `{shape}` |"
        for head in factory.model_classes:
            tied = parameters(factory.build(head))
            for name, shape in parameters(untied_factory.build(head)).items():
                if name not in untied_backbone:
                    where = f"`{head}`" if name in tied else f"`{head}` {UNTIED}"
                    yield f"| {where} | `{name}` | `{shape}` |"


def module_tables() -> Iterator[str]:
    """Yield the lines of the tables of modules."""
    for title, module, note in modules():
        yield from ("", f"### {title}", "")
        if note:
            yield from (note, "")
        yield from ("| parameter | shape |", "|---|---|")
        for name, shape in parameters(module).items():
            yield f"| `{name}` | `{shape}` |"


def page() -> str:
    """Return the page."""
    with torch.device("meta"):  # Names and shapes need no memory.
        models = list(model_tables())
        parts = list(module_tables())
    lines = [INTRODUCTION, MODELS.rstrip(), *models, "", MODULES.rstrip(), *parts, ""]
    return "\n".join(lines)


def main() -> None:
    """Write or check the page."""
    if "--check" in sys.argv[1:]:
        if PAGE.read_text("utf-8") != page():
            sys.exit(f"{PAGE} is out of date: run `python -m tools.module_parameters`")
        return
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()

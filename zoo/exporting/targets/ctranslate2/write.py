"""A model in CTranslate2's format."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

from zoo.checkpoint import Checkpoint
from zoo.errors import VerificationError
from zoo.exporting.targets.ctranslate2.vocabulary import vocabulary
from zoo.exporting.targets.tensors import runtime_tensors
from zoo.families.runtimes import RuntimeModel


def write_model(checkpoint: Checkpoint, folder: Path, precision: str) -> None:
    """Write a checkpoint into a new folder."""
    model = checkpoint.family.runtime_model("ctranslate2", checkpoint.config, checkpoint.head_name)
    assert isinstance(model, RuntimeModel), "the target holds the model"
    spec = ARCHITECTURES[model.architecture](dict(model.settings))
    for name, array in runtime_tensors(checkpoint, model).items():
        scope, _, attribute = name.rpartition("/")
        owner = ctranslate2.specs.model_spec.index_spec(spec, scope)
        if not hasattr(owner, attribute):
            version = ctranslate2.__version__
            raise VerificationError(f"CTranslate2 {version} has no variable {name}", "report it")
        setattr(owner, attribute, np.array(array, order="C"))  # a copy, which int8 scales
    tokens = vocabulary(checkpoint)
    special = checkpoint.model.tokenizer.special if checkpoint.model.tokenizer else {}
    for role in ("unk", "bos", "eos"):
        if token := special.get(role):
            setattr(spec.config, f"{role}_token", token)
    if isinstance(spec, transformer_spec.TransformerSpec):
        spec.register_source_vocabulary(tokens)
        spec.register_target_vocabulary(tokens)
        config: Any = checkpoint.config
        has_start = model.settings.get("decoder_start", True)
        start = tokens[config.decoder_start_token_id] if has_start else None
        spec.config.decoder_start_token = start
        spec.config.eos_token = tokens[config.eos_token_id]
    else:
        spec.register_vocabulary(tokens)
    spec.config.layer_norm_epsilon = model.settings["layer_norm_epsilon"]
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    folder.mkdir()
    spec.save(str(folder))


def _encoder(settings: dict[str, Any]) -> Any:
    pooler = settings.pop("pooler", False)
    (stack,) = _stacks(settings, transformer_spec.TransformerEncoderSpec)
    return transformer_spec.TransformerEncoderModelSpec(stack, pooling_layer=pooler)


def _decoder(settings: dict[str, Any]) -> Any:
    spec_class = partial(transformer_spec.TransformerDecoderSpec, with_encoder_attention=False)
    (stack,) = _stacks(settings, spec_class)
    return transformer_spec.TransformerDecoderModelSpec(stack)


def _encoder_decoder(settings: dict[str, Any]) -> Any:
    settings.pop("decoder_start", None)
    scale = settings.pop("scale_outputs", None)
    spec_classes = transformer_spec.TransformerEncoderSpec, transformer_spec.TransformerDecoderSpec
    encoder, decoder = _stacks(settings, *spec_classes)
    if scale is not None:
        decoder.scale_outputs = scale
    return transformer_spec.TransformerSpec(encoder, decoder)


def _stacks(settings: dict[str, Any], *spec_classes: Callable[..., Any]) -> list[Any]:
    """Return a stack of each kind; of several, layers and heads are a number for each."""
    del settings["layer_norm_epsilon"]
    activation = common_spec.Activation[settings.pop("activation")]
    embeddings_scale = settings.pop("scale_embeddings", False)
    queries_scale = settings.pop("queries_scale", None)
    distance = settings.pop("relative_attention_max_distance", None)
    sizes = {name: settings.pop(name) for name in ("num_layers", "num_heads")}
    stacks = []
    for place, spec_class in enumerate(spec_classes):
        own = {name: size[place] if len(spec_classes) > 1 else size for name, size in sizes.items()}
        if spec_class is transformer_spec.TransformerEncoderSpec:
            own["embeddings_merge"] = common_spec.EmbeddingsMerge.ADD
        stack = spec_class(**own, **settings, activation=activation)
        stack.scale_embeddings = embeddings_scale
        for layer in stack.layer:
            attentions = [layer.self_attention, getattr(layer, "attention", None)]
            for attention in filter(None, attentions):
                if queries_scale is not None:
                    attention.queries_scale = queries_scale
            if distance is not None:
                layer.self_attention.relative_attention_max_distance = np.int32(distance)
        stacks.append(stack)
    return stacks


ARCHITECTURES: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "encoder": _encoder,
    "decoder": _decoder,
    "encoder-decoder": _encoder_decoder,
}

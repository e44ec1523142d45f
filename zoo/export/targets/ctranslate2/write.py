"""A model in CTranslate2's format."""

from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

from zoo.checkpoint import Checkpoint
from zoo.errors import VerificationError
from zoo.export.targets.ctranslate2.vocabulary import vocabulary
from zoo.export.targets.tensors import runtime_tensors
from zoo.families.runtimes import RuntimeModel


def write_model(checkpoint: Checkpoint, folder: Path, precision: str) -> None:
    """Write a checkpoint into a new folder."""
    model = checkpoint.family.runtime_model("ctranslate2", checkpoint.config, checkpoint.head_name)
    assert isinstance(model, RuntimeModel), "the target holds the model"
    spec = _encoder(model) if model.architecture == "encoder" else _decoder(model)
    for name, array in runtime_tensors(checkpoint, model).items():
        scope, _, attribute = name.rpartition("/")
        owner = ctranslate2.specs.model_spec.index_spec(spec, scope)
        if not hasattr(owner, attribute):
            version = ctranslate2.__version__
            raise VerificationError(f"CTranslate2 {version} has no variable {name}", "report it")
        setattr(owner, attribute, np.array(array, order="C"))  # a copy, which int8 scales
    spec.register_vocabulary(vocabulary(checkpoint))
    special = checkpoint.model.tokenizer.special if checkpoint.model.tokenizer else {}
    for role in ("unk", "bos", "eos"):
        if token := special.get(role):
            setattr(spec.config, f"{role}_token", token)
    spec.config.layer_norm_epsilon = model.settings["layer_norm_epsilon"]
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    folder.mkdir()
    spec.save(str(folder))


def _encoder(model: RuntimeModel) -> Any:
    settings = dict(model.settings)
    pooler, _ = settings.pop("pooler"), settings.pop("layer_norm_epsilon")
    activation = common_spec.Activation[settings.pop("activation")]
    encoder = transformer_spec.TransformerEncoderSpec(
        **settings, activation=activation, embeddings_merge=common_spec.EmbeddingsMerge.ADD
    )
    encoder.scale_embeddings = False
    return transformer_spec.TransformerEncoderModelSpec(encoder, pooling_layer=pooler)


def _decoder(model: RuntimeModel) -> Any:
    settings = dict(model.settings)
    del settings["layer_norm_epsilon"]
    activation = common_spec.Activation[settings.pop("activation")]
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        **settings, activation=activation
    )
    spec.decoder.scale_embeddings = False
    return spec

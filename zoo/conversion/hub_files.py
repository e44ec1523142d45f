"""Configuration and tokenizer files of the Hub's layout, of a conversion and of an export."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.checkpoint import CONFIG, Checkpoint
from zoo.checkpoint.generation_config import GENERATION_CONFIG
from zoo.conversion.tokenizer import SourceTokenizer
from zoo.errors import UsageError
from zoo.families.base import GENERATING, Family
from zoo.families.config import Config
from zoo.io.json import encode_json
from zoo.plugins.tasks import model_fields
from zoo.sentence_models.cross_encoder_files import hub_pair_files, with_activation
from zoo.sentence_models.module_weights import module_weight_files
from zoo.sentence_models.sentence_transformers_files import STATIC

if TYPE_CHECKING:
    from zoo.sentence_models.pooling import Pooling

TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


def require_hub_layout(family: Family, config: Any, extra: Mapping[str, Any] | None) -> None:
    """Check that the Hub's layout can hold a model; for the arguments, see ``hub_side_files``.

    Raises:
        UsageError: it cannot.
    """
    problem = family.hub_problem(config, extra)
    if problem is not None:
        raise UsageError(f"the Hub's layout cannot hold the model: {problem}", "use zoo's layout")


def hub_side_files(
    family: Family,
    config: Config,
    head: str,
    *,
    dtype: str,
    architecture: str | None,
    extra: Mapping[str, Any] | None = None,
    tokenizer: SourceTokenizer | None = None,
    pooling: "Pooling | None" = None,
    generation: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """Return all files of the Hub's layout except weights, name -> contents."""
    from zoo.sentence_models import hub_pooling_files
    from zoo.tokenizers import hub_token_ids, hub_tokenizer_files

    require_hub_layout(family, config, extra)
    content = family.to_hub(config, extra)
    if family.config_files[0] == CONFIG:
        content["architectures"] = [architecture] if architecture else []
        content["dtype"] = dtype
    files: dict[str, bytes] = {}
    if tokenizer is not None and family.text_tokenizer(config) is None:
        inputs = tuple(family.onnx(config, head).inputs)
        info = tokenizer.info
        if pooling is not None and family.sentence_module == STATIC:
            info = info.cut_at(pooling.max_tokens)
        files |= hub_tokenizer_files(
            tokenizer.json, info, inputs=inputs, padding_side=family.padding_side
        )
        content = hub_token_ids(tokenizer.json, tokenizer.info) | content
    if pooling is not None:
        content |= family.sentence_keys(pooling)
    files[family.config_files[0]] = encode_json({**content, **(more or {})})
    if GENERATING.intersection(family.heads()[head].tasks):
        if not generation:
            generation = {"_from_model_config": True}
            for key in TOKEN_IDS:
                if content.get(key) is not None:
                    generation[key] = content[key]
        files[GENERATION_CONFIG] = encode_json(generation)
    if pooling is not None:
        files |= hub_pooling_files(pooling, pooling.input_width(config), family.sentence_module)
    return files


def checkpoint_side_files(
    checkpoint: Checkpoint,
    *,
    dtype: str,
    architecture: str | None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """Return all files of the Hub's layout except the model's weights, of a checkpoint of ours."""
    model = checkpoint.model
    source = checkpoint.manifest.source
    tokenizer = None
    if model.tokenizer is not None:
        tokenizer = SourceTokenizer(checkpoint.tokenizer_file.read_bytes(), model.tokenizer)
    extra_config = source.extra_config if source else None
    files = hub_side_files(
        checkpoint.family,
        checkpoint.config,
        checkpoint.head_name,
        dtype=dtype,
        architecture=architecture,
        extra=with_activation(extra_config, model.score_activation),
        tokenizer=tokenizer,
        pooling=model.pooling,
        generation=model.generation,
        more=more,
    )
    if model.pairs is not None:
        files |= hub_pair_files(
            model.pairs,
            model.score_activation,
            labels=len(checkpoint.config.labels),
            extra=extra_config,
        )
    for name in module_weight_files(model.pooling):
        files[name] = (checkpoint.module_holder.path / name).read_bytes()
    return files


def require_hub_class(
    family: Family,
    config: Config,
    head: str,
    *,
    fields: Mapping[str, Any],
    origin: str,
) -> None:
    """Check that a program that opens the Hub's layout would compute the results of the model.

    Tasks set ``fields`` in ``config.json``; other programs do not read them.
    """
    if family.heads()[head].has_labels:
        family.architecture(config, head)  # This raises an error if there is no such class.
    for field in model_fields().values():
        if fields.get(field.name) not in (None, False):
            raise UsageError(
                f"{origin} {field.effect}",
                f"use it with zoo run or zoo export, or train it without {field.setting}",
            )

"""Cross-encoders of sentence-transformers: functions that make scores of logits, and prompts."""

from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any

import msgspec

from zoo.errors import VerificationError
from zoo.io.file_keys import FileKeys, Precedence, honoured
from zoo.io.json import JsonStruct, encode_hub_json
from zoo.sentence_models.module_files import (
    PACKAGES,
    activation_named,
    activation_path,
    check_keys,
    count,
)
from zoo.sentence_models.modules import ActivationName
from zoo.sentence_models.pooling import find_prompt
from zoo.sentence_models.sentence_transformers_files import (
    CROSS_ENCODER,
    MODULES,
    SENTENCE,
    SENTENCE_KEYS,
    SETTINGS,
    SETTINGS_KEYS,
    module_kinds,
    read_prompts,
)
from zoo.tokenizers.source_files import SourceFiles

GROUP = "sentence_transformers"
KEY = "activation_fn"
OLD_KEY = "sbert_ce_default_activation_function"
CROSS_ENCODER_KEYS: FileKeys = {
    GROUP: honoured(f"its `{KEY}` makes the score of a single logit: a function of `torch.nn`"),
    OLD_KEY: honoured(f"an older name of `{GROUP}.{KEY}`"),
}
CROSS_ENCODER_PRECEDENCE = (
    Precedence(
        "the function of a score",
        (
            f"`{KEY}` of `{SETTINGS}`",
            f"`{GROUP}.{KEY}` of `config.json`",
            f"`{OLD_KEY}` of `config.json`",
        ),
        "the first needs `modules.json`. Without any, files of a cross-encoder mean a sigmoid of "
        "a single logit",
    ),
)
# keys of the file about the model, as the library writes them
TEXT: Mapping[str, Any] = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "scores",
}
# key that is refused -> the values that a cross-encoder has
ACCEPTED: Mapping[str, tuple[Any, ...]] = {
    "model_type": (CROSS_ENCODER,),
    "keep_in_fp32_modules": (None, []),
    **{key: (value,) for key, value in TEXT.items()},
    "processing_kwargs": (None, {}),
    "kwargs": (None, [], {}),
}
UNUSED = ("do_lower_case", "truncate_dim", "query_length", "document_length", "query_expansion")


class PairSettings(JsonStruct):
    """What a cross-encoder of sentence-transformers does with the texts of a pair."""

    # name -> text that precedes the first text of a pair, such as a query
    prompts: dict[str, str] = msgspec.field(default_factory=dict)
    default_prompt_name: str | None = None  # the prompt of a pair; ``None`` for none
    # maximum length of a pair in tokens; ``None`` for the model's
    max_tokens: int | None = None

    def prompt(self, name: str | None = None) -> str:
        """Return the text of a prompt, by default of the default prompt, if any."""
        return find_prompt(self.prompts, name, self.default_prompt_name)


def read_cross_encoder(files: SourceFiles) -> dict[str, Any]:
    """Return the keys of ``config.json`` that say what a cross-encoder's files say.

    Three versions of the library keep it in three places: ``config.json`` has it under
    ``sentence_transformers.activation_fn`` or ``sbert_ce_default_activation_function``, and
    ``config_sentence_transformers.json``, next to a ``modules.json``, under ``activation_fn``.
    """
    contents = _read(files)
    if contents is None:
        return {}
    settings, _ = contents
    if not settings.get(KEY):
        return {}
    return {GROUP: {KEY: settings[KEY]}}


def declares_cross_encoder(files: SourceFiles) -> bool:
    """Return whether the files are of a cross-encoder, whose default function is a sigmoid."""
    return _read(files) is not None


def read_pair_settings(files: SourceFiles) -> PairSettings | None:
    """Return the settings of a cross-encoder; ``None`` for other models, and without any."""
    contents = _read(files)
    if contents is None:
        return None
    settings, sentence = contents
    prompts, default = read_prompts(settings, str(files.path(SETTINGS)))
    pairs = PairSettings(
        # The library gives every model these names, without texts.
        prompts={name: text for name, text in prompts.items() if text},
        default_prompt_name=default,
        max_tokens=count(sentence, "max_seq_length", str(files.path(SENTENCE))),
    )
    return None if pairs == PairSettings() else pairs


def _read(files: SourceFiles) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the settings and the file about the model; ``None`` without the files of a version."""
    if not files.has(MODULES):
        return None
    settings = files.json_if_any(SETTINGS)
    if settings.get("model_type") != CROSS_ENCODER:
        return None
    kinds = module_kinds(files)
    if kinds != ("Transformer",):
        raise VerificationError(
            f"{files.path(MODULES)}: {', '.join(kinds)[:99]} is not implemented in a cross-encoder",
            "only Transformer is",
        )
    sentence = files.json_if_any(SENTENCE)
    accepted = {**ACCEPTED, KEY: (settings.get(KEY),)}
    for name, config, keys in (
        (SETTINGS, settings, SETTINGS_KEYS),
        (SENTENCE, sentence, SENTENCE_KEYS),
    ):
        check_keys(config, keys, str(files.path(name)), accepted)
        for key in UNUSED:
            if config.get(key):
                raise VerificationError(
                    f"{files.path(name)}: {key} = {shown(config[key])} is not implemented",
                    "of cross-encoders",
                )
    return settings, sentence


def score_activation(config: Mapping[str, Any], origin: str) -> ActivationName | None:
    """Return the function that makes a score of a single logit; ``None`` where no key names one."""
    key, path = _find_activation(config)
    if path is None:
        return None
    return activation_named(path, f"{origin}: {key}")


def _find_activation(config: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the key of ``config.json`` that names the function, and its path in torch, if any."""
    group = config.get(GROUP)
    path = group.get(KEY) if isinstance(group, Mapping) else None
    if path is None:
        return OLD_KEY, config.get(OLD_KEY)
    return f"{GROUP}.{KEY}", path


def with_activation(
    extra: Mapping[str, Any] | None, activation: ActivationName | None
) -> Mapping[str, Any] | None:
    """Return keys of ``config.json`` with the function of a model, if they lack it.

    Without a key, sentence-transformers takes the sigmoid of a single logit.
    """
    if activation is None or (extra and (GROUP in extra or OLD_KEY in extra)):
        return extra
    return {**(extra or {}), GROUP: {KEY: activation_path(activation)}}


def hub_pair_files(
    pairs: PairSettings,
    activation: ActivationName | None,
    *,
    labels: int = 1,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """Return the files with which sentence-transformers reads the settings of a cross-encoder.

    Args:
        pairs: prompts and length.
        activation: function that makes the score of a single logit.
        labels: number of labels.
        extra: keys of the source's ``config.json``, which name the function of several labels.
    """
    if activation is not None:
        path = activation_path(activation)
    else:
        _, path = _find_activation(extra or {})
        if not path:
            path = activation_path("sigmoid" if labels == 1 else "identity")
    module = {"idx": 0, "name": "0", "path": "", "type": f"{PACKAGES['Transformer']}.Transformer"}
    sentence: dict[str, Any] = dict(TEXT)
    if pairs.max_tokens is not None:
        sentence["max_seq_length"] = pairs.max_tokens
    settings = {
        "model_type": CROSS_ENCODER,
        KEY: path,
        "prompts": pairs.prompts,
        "default_prompt_name": pairs.default_prompt_name,
    }
    return {
        MODULES: encode_hub_json([module]),
        SENTENCE: encode_hub_json(sentence),
        SETTINGS: encode_hub_json(settings),
    }

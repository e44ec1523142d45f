"""Cross-encoders of sentence-transformers: the function that makes scores of logits."""

from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any, Literal

from zoo.errors import VerificationError
from zoo.io.file_keys import FileKeys, honoured
from zoo.tokenizers.module_files import check_keys
from zoo.tokenizers.sentence_files import (
    CROSS_ENCODER,
    MODULES,
    SENTENCE,
    SENTENCE_KEYS,
    SETTINGS,
    SETTINGS_KEYS,
    module_kinds,
)
from zoo.tokenizers.source_files import SourceFiles

ScoreActivation = Literal["identity", "sigmoid"]
ACTIVATIONS: Mapping[str, ScoreActivation] = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.Identity": "identity",
    "torch.nn.Sigmoid": "sigmoid",
}
GROUP, KEY, OLD_KEY = (
    "sentence_transformers",
    "activation_fn",
    "sbert_ce_default_activation_function",
)
CROSS_ENCODER_KEYS: FileKeys = {
    GROUP: honoured(f"its `{KEY}` makes the score of a single logit: identity or sigmoid"),
    OLD_KEY: honoured(f"an older name of `{GROUP}.{KEY}`"),
}
# key that is refused -> the values that a cross-encoder has
ACCEPTED: Mapping[str, tuple[Any, ...]] = {
    "model_type": (CROSS_ENCODER,),
    "keep_in_fp32_modules": (None, []),
    "transformer_task": ("sequence-classification",),
    "modality_config": ({"text": {"method": "forward", "method_output_name": "logits"}},),
    "module_output_name": ("scores",),
    "processing_kwargs": (None, {}),
    "kwargs": (None, [], {}),
}
NAMES: Mapping[ScoreActivation, str] = {
    name: path for path, name in ACTIVATIONS.items() if "modules" in path
}
UNUSED = ("prompts", "default_prompt_name", "max_seq_length", "do_lower_case", "truncate_dim")


def read_cross_encoder(files: SourceFiles) -> dict[str, Any]:
    """Return the keys of ``config.json`` that say what a cross-encoder's files say."""
    # Three versions of the library keep it in three places: ``config.json`` has it under
    # ``sentence_transformers.activation_fn`` or ``sbert_ce_default_activation_function``, and
    # ``config_sentence_transformers.json``, next to a ``modules.json``, under ``activation_fn``.
    #
    # They are empty for other models, and for a cross-encoder without these files
    if not files.has(MODULES):
        return {}
    settings = files.json_if_any(SETTINGS)
    if settings.get("model_type") != CROSS_ENCODER:
        return {}
    if (kinds := module_kinds(files)) != ("Transformer",):
        raise VerificationError(
            f"{files.path(MODULES)}: {', '.join(kinds)[:100]}: not implemented",
            "only Transformer is, of a cross-encoder",
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
    return {GROUP: {KEY: settings[KEY]}} if settings.get(KEY) else {}


def score_activation(config: Mapping[str, Any], origin: str) -> ScoreActivation | None:
    """Return the function that makes a score of a single logit; ``None`` where no key names one."""
    group = config.get(GROUP)
    stated: Any = group.get(KEY) if isinstance(group, Mapping) else None
    key = f"{GROUP}.{KEY}" if stated is not None else OLD_KEY
    stated = config.get(OLD_KEY) if stated is None else stated
    if stated is None:
        return None
    if not isinstance(stated, str) or stated not in ACTIVATIONS:
        raise VerificationError(
            f"{origin}: {key} = {shown(stated)} is not implemented",
            f"only {' and '.join(list(ACTIVATIONS)[:2])} are, for a single logit",
        )
    return ACTIVATIONS[stated]


def with_activation(
    extra: Mapping[str, Any] | None, activation: ScoreActivation | None
) -> Mapping[str, Any] | None:
    """Return keys of ``config.json`` with the function of a model, if they lack it."""
    # Without a key, sentence-transformers takes the sigmoid of a single logit.
    if activation is None or (extra and (GROUP in extra or OLD_KEY in extra)):
        return extra
    return {**(extra or {}), GROUP: {KEY: NAMES[activation]}}

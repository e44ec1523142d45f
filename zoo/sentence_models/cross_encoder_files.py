"""Cross-encoders of sentence-transformers: functions that make scores of logits, and prompts."""

from collections.abc import Collection, Mapping
from reprlib import repr as shown
from typing import Any, Literal, get_args

import msgspec

from zoo.errors import VerificationError
from zoo.io.file_keys import FileKeys, Precedence, honoured
from zoo.io.json import JsonStruct, encode_hub_json
from zoo.sentence_models.module_files import (
    LOGIT_SCORE,
    LOGIT_SCORE_KEYS,
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
    module_folders,
    module_kinds,
    read_prompts,
)
from zoo.tokenizers.source_files import CHAT_TEMPLATE, SourceFiles

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
# the same keys of a language model, whose logits `LogitScore` reads
LANGUAGE_MODEL: Mapping[str, Any] = {
    "transformer_task": "text-generation",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "causal_logits",
}
LOGIT_SCORE_INPUT = "causal_logits"
LOGIT_SCORE_FOLDER = f"1_{LOGIT_SCORE}"
# key that is refused -> the values that a cross-encoder has
ACCEPTED: Mapping[str, tuple[Any, ...]] = {
    "model_type": (CROSS_ENCODER,),
    "keep_in_fp32_modules": (None, []),
    **{key: (value,) for key, value in TEXT.items()},
    "processing_kwargs": (None, {}),
    "kwargs": (None, [], {}),
}
UNUSED = ("do_lower_case", "truncate_dim", "query_length", "document_length", "query_expansion")


MessageFormat = Literal["flat", "structured"]


class LogitScore(JsonStruct):
    """How a language model scores a pair: by the logits of two tokens after its last one."""

    true_token_id: int  # the token of a relevant text, such as ``yes``
    # the token of other texts, whose logit is subtracted; ``None`` for the first logit only
    false_token_id: int | None = None
    activation: ActivationName = "sigmoid"  # turns the logit of the pair into its score
    # the form of messages, for a pair that the tokenizer's chat template makes a text of; ``None``
    # for a pair that the tokenizer reads as two texts
    message_format: MessageFormat | None = None
    add_generation_prompt: bool = False  # a variable of the chat template


class PairSettings(JsonStruct):
    """What a cross-encoder of sentence-transformers does with the texts of a pair."""

    # name -> text that precedes the first text of a pair, such as a query
    prompts: dict[str, str] = msgspec.field(default_factory=dict)
    default_prompt_name: str | None = None  # the prompt of a pair; ``None`` for none
    # maximum length of a pair in tokens; ``None`` for the model's
    max_tokens: int | None = None
    # of a causal language model; ``None`` for classifiers
    logit_score: LogitScore | None = None

    def prompt(self, name: str | None = None) -> str:
        """Return the text of a prompt, by default of the default prompt, if any."""
        return find_prompt(self.prompts, name, self.default_prompt_name)

    def suits(self, tasks: Collection[str]) -> bool:
        """Return whether a head with these tasks computes the scores."""
        return ("classify" if self.logit_score is None else "generate") in tasks


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
    if not settings.get(KEY) or _scores_logits(files):
        return {}
    return {GROUP: {KEY: settings[KEY]}}


def declares_cross_encoder(files: SourceFiles) -> bool:
    """Return whether the files are of a cross-encoder, whose default function is a sigmoid."""
    return _read(files) is not None and not _scores_logits(files)


def read_pair_settings(files: SourceFiles, tasks: Collection[str]) -> PairSettings | None:
    """Return the settings of a cross-encoder; ``None`` for other models, and without any.

    Args:
        files: the files.
        tasks: tasks of the head that is read; it has no settings of another kind of head.
    """
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
        logit_score=_read_logit_score(files, settings, sentence),
    )
    return None if pairs == PairSettings() or not pairs.suits(tasks) else pairs


def _read(files: SourceFiles) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the settings and the file about the model; ``None`` without the files of a version."""
    if not files.has(MODULES):
        return None
    settings = files.json_if_any(SETTINGS)
    if settings.get("model_type") != CROSS_ENCODER:
        return None
    kinds = module_kinds(files)
    if kinds not in (("Transformer",), ("Transformer", LOGIT_SCORE)):
        raise VerificationError(
            f"{files.path(MODULES)}: {', '.join(kinds)[:99]} is not implemented in a cross-encoder",
            f"only Transformer is, with or without {LOGIT_SCORE}",
        )
    sentence = files.json_if_any(SENTENCE)
    accepted = {**ACCEPTED, KEY: (settings.get(KEY),)}
    if LOGIT_SCORE in kinds:
        accepted |= _accepted_of_language_models()
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


def _scores_logits(files: SourceFiles) -> bool:
    return LOGIT_SCORE in module_kinds(files)


def _accepted_of_language_models() -> dict[str, tuple[Any, ...]]:
    """Return the values of refused keys that a language model has."""
    accepted: dict[str, tuple[Any, ...]] = {}
    for key, value in LANGUAGE_MODEL.items():
        accepted[key] = (value,)
    formats: tuple[MessageFormat | None, ...] = (None, *get_args(MessageFormat))
    accepted["modality_config"] = tuple([_modality_config(name) for name in formats])
    accepted["processing_kwargs"] = (None, {}, _processing(False), _processing(True))
    return accepted


def _modality_config(message_format: MessageFormat | None) -> dict[str, Any]:
    modality_config = dict(LANGUAGE_MODEL["modality_config"])
    if message_format is not None:
        modality_config["message"] = {**modality_config["text"], "format": message_format}
    return modality_config


def _processing(add_generation_prompt: bool) -> dict[str, Any]:
    return {"chat_template": {"add_generation_prompt": add_generation_prompt}}


def _read_logit_score(
    files: SourceFiles, settings: Mapping[str, Any], sentence: Mapping[str, Any]
) -> LogitScore | None:
    """Return how a language model scores pairs; ``None`` for a classifier."""
    if not _scores_logits(files):
        return None
    if "modality_config" not in sentence:
        raise VerificationError(
            f"{files.path(SENTENCE)}: the key modality_config is missing",
            "save the model with sentence-transformers 6",
        )
    folder = module_folders(files)[LOGIT_SCORE_FOLDER]
    name = f"{folder}/config.json"
    config = files.json(name)
    origin = str(files.path(name))
    accepted = {"module_input_name": (LOGIT_SCORE_INPUT,)}
    check_keys(config, LOGIT_SCORE_KEYS, origin, accepted)
    chat_options = (sentence.get("processing_kwargs") or {}).get("chat_template", {})
    fields = {
        "true_token_id": config.get("true_token_id"),
        "false_token_id": config.get("false_token_id"),
        "message_format": sentence["modality_config"].get("message", {}).get("format"),
        **chat_options,
    }
    if settings.get(KEY):
        fields["activation"] = activation_named(settings[KEY], f"{files.path(SETTINGS)}: {KEY}")
    try:
        return msgspec.convert(fields, LogitScore)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{origin}: {error}") from error


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


def reranker_files(score: LogitScore, chat_template: str) -> dict[str, bytes]:
    """Return the files that make a reranker of a repository with only a language model.

    Args:
        score: the tokens whose logits score a pair, and the form of messages.
        chat_template: makes the text of a pair of messages.
    """
    files = hub_pair_files(PairSettings(logit_score=score), None)
    return {**files, CHAT_TEMPLATE: chat_template.encode()}


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
    modules = [module]
    sentence: dict[str, Any] = dict(TEXT)
    score_files = {}
    score = pairs.logit_score
    if score is not None:
        path = activation_path(score.activation)
        class_path = f"{PACKAGES[LOGIT_SCORE]}.{LOGIT_SCORE}"
        modules.append({"idx": 1, "name": "1", "path": LOGIT_SCORE_FOLDER, "type": class_path})
        sentence = {
            **LANGUAGE_MODEL,
            "modality_config": _modality_config(score.message_format),
        }
        if score.add_generation_prompt:
            sentence["processing_kwargs"] = _processing(score.add_generation_prompt)
        config = {
            "true_token_id": score.true_token_id,
            "false_token_id": score.false_token_id,
            "module_input_name": LOGIT_SCORE_INPUT,
        }
        score_files[f"{LOGIT_SCORE_FOLDER}/config.json"] = encode_hub_json(config)
    if pairs.max_tokens is not None:
        sentence["max_seq_length"] = pairs.max_tokens
    settings = {
        "model_type": CROSS_ENCODER,
        KEY: path,
        "prompts": pairs.prompts,
        "default_prompt_name": pairs.default_prompt_name,
    }
    return {
        MODULES: encode_hub_json(modules),
        SENTENCE: encode_hub_json(sentence),
        SETTINGS: encode_hub_json(settings),
        **score_files,
    }

"""Settings of text generation, from a call and from a checkpoint."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from reprlib import repr as shown
from typing import Any, Literal, get_type_hints

import msgspec

from zoo.errors import UsageError, VerificationError, did_you_mean
from zoo.io.file_keys import FileKeys, Precedence, Treatment, carried, honoured, refused
from zoo.io.limits import MAX_BEAM_TOKENS, MAX_BEAMS, MAX_GENERATION_IDS, MAX_NEW_TOKENS

GENERATION_CONFIG = "generation_config.json"
DEFAULT_NEW_TOKENS = 20
TokenIds = int | tuple[int, ...]


@dataclass(frozen=True)
class GenerationConfig:
    """Settings of generation, named as in transformers' ``GenerationConfig``.

    The search is greedy by default, a beam search if ``num_beams`` is over 1, and samples if
    ``do_sample`` is true, or unset and any of ``temperature``, ``top_k``, ``top_p``, the other
    settings of sampling and ``seed`` is given.

    Raises:
        UsageError: a value is out of range, or two settings exclude each other.
    """

    # maximum number of new tokens; 20 if ``max_length`` is not given either
    max_new_tokens: int | None = None
    # minimum number of new tokens; end-of-sequence tokens are excluded before
    min_new_tokens: int = 0
    num_beams: int = 1  # number of beams
    # exponent of the length that the log-probability of a finished beam is divided by; positive
    # values favour long sequences. From -10 to 10.
    length_penalty: float = 1.0
    # when a beam search ends: ``True`` as soon as ``num_beams`` hypotheses are finished; ``False``
    # when no running beam has a better score at its present length; ``"never"`` when none can reach
    # one
    early_stopping: bool | Literal["never"] = False
    temperature: float | None = None  # divisor of the logits
    top_k: int | None = None  # number of most likely tokens to sample from; by default all
    top_p: float | None = None  # total probability of the most likely tokens to sample from
    # random seed; the numbers of a prompt depend on it and on the index of the prompt
    seed: int | None = None
    # maximum number of tokens of the decoder, prompt included, without ``max_new_tokens``
    max_length: int | None = None
    min_length: int = 0  # minimum number of tokens of the decoder, prompt included
    do_sample: bool | None = None  # whether to sample
    # number of sequences for each prompt; with beams at most their number, and otherwise over 1
    # only for sampling
    num_return_sequences: int = 1
    # fraction of the entropy up to which the most likely tokens are kept
    top_h: float | None = None
    # smallest probability to sample from, relative to the most likely token's
    min_p: float | None = None
    # total probability of the tokens to sample from whose information is nearest to the entropy
    typical_p: float | None = None
    epsilon_cutoff: float | None = None  # smallest probability to sample from
    # upper bound of a smallest probability that depends on the entropy
    eta_cutoff: float | None = None
    # divisor of positive scores and factor of negative scores of tokens that occurred; over 1
    # against repetition
    repetition_penalty: float = 1.0
    encoder_repetition_penalty: float = 1.0  # its inverse, for tokens of the prompt or source
    no_repeat_ngram_size: int = 0  # length of n-grams that occur once; 0 for no such rule
    # length of n-grams of the prompt or source that do not occur
    encoder_no_repeat_ngram_size: int = 0
    # sequences of tokens that do not occur
    bad_words_ids: tuple[tuple[int, ...], ...] | None = None
    # pairs of a sequence of tokens and what is added to the score of its last
    sequence_bias: tuple[tuple[tuple[int, ...], float], ...] | None = None
    forced_bos_token_id: int | None = None  # the token after the first one of the decoder
    # the token, or tokens to choose from, at the maximum length
    forced_eos_token_id: TokenIds | None = None
    suppress_tokens: tuple[int, ...] | None = None  # tokens that do not occur
    begin_suppress_tokens: tuple[int, ...] | None = None  # tokens that are not the first new one
    # number of new tokens after which the score of the end rises, and the base of the exponential
    # by which it does
    exponential_decay_length_penalty: tuple[int, float] | None = None
    # replace NaN and infinity in the model's output, which are errors otherwise
    remove_invalid_values: bool = False
    renormalize_logits: bool = False  # turn the scores into log-probabilities after all rules
    # end-of-sequence token or tokens; by default the tokenizer's
    eos_token_id: TokenIds | None = None
    # token that an empty prompt is replaced by; by default the tokenizer's
    bos_token_id: int | None = None
    # first token of the decoder of an encoder-decoder; by default the model's
    decoder_start_token_id: int | None = None

    def __post_init__(self) -> None:
        self._check_ranges()
        for name in TOKEN_KEYS:
            value = getattr(self, name)
            if value is None:
                continue
            sequences = _sequences(name, value)
            number = sum(map(len, sequences))
            if number > MAX_GENERATION_IDS:
                raise UsageError(
                    f"{name} has {number:,} token ids", f"at most {MAX_GENERATION_IDS:,} are read"
                )
            if any(not ids or min(ids) < 0 for ids in sequences):
                raise UsageError(f"{name} cannot be {shown(value)}", "ids of tokens are >= 0")
        if any(math.isnan(bias) or bias == math.inf for _, bias in self.sequence_bias or ()):
            raise UsageError("a bias of sequence_bias is NaN or infinite", "give a number")
        if min(self.longest, MAX_NEW_TOKENS) * self.num_beams > MAX_BEAM_TOKENS:
            raise UsageError(
                f"{self.num_beams} beams of {self.longest} new tokens take too much memory",
                f"their product is at most {MAX_BEAM_TOKENS:,}",
            )
        if self.num_beams == 1 and (self.length_penalty != 1 or self.early_stopping):
            raise UsageError(
                "length_penalty and early_stopping are for beams", "give num_beams as well"
            )
        if self.do_sample is False and self._sampling():
            raise UsageError(f"{self._sampling()[0]} is for sampling", "set do_sample to true")
        max_sequences = self.num_beams
        if self.samples and self.num_beams == 1:
            max_sequences = MAX_BEAMS
        if not 1 <= self.num_return_sequences <= max_sequences:
            raise UsageError(
                f"num_return_sequences cannot be {self.num_return_sequences}",
                f"it is from 1 to {max_sequences}: give as many beams, or sample",
            )

    def _check_ranges(self) -> None:
        def above(low: float, value: float | None) -> bool:
            return value is None or low < value < math.inf

        def part(value: float | None, low: float = 0.0) -> bool:
            return value is None or low <= value <= 1

        # A number up to this divides a length of MAX_NEW_TOKENS without overflow.
        most = self.longest
        decay = self.exponential_decay_length_penalty or (0, 1.0)
        checks = [
            ("max_new_tokens", 1 <= (self.max_new_tokens or most) <= MAX_NEW_TOKENS, _TO_MOST),
            ("max_new_tokens", self.max_new_tokens != 0, _TO_MOST),
            ("max_length", self.max_length is None or self.max_length >= 1, "from 1 up"),
            ("min_new_tokens", 0 <= self.min_new_tokens <= most, f"from 0 to {most}, the most"),
            ("min_length", self.min_length >= 0, "from 0 up"),
            ("num_beams", 1 <= self.num_beams <= MAX_BEAMS, f"from 1 to {MAX_BEAMS}"),
            ("early_stopping", self.early_stopping in (True, False, "never"), "a bool or 'never'"),
            ("length_penalty", abs(self.length_penalty) <= 10, "from -10 to 10"),
            ("temperature", above(0, self.temperature), "> 0"),
            ("top_k", self.top_k is None or self.top_k >= 1, "from 1 up"),
            ("top_p", above(0, self.top_p) and part(self.top_p), "over 0 and at most 1"),
            ("top_h", above(0, self.top_h) and part(self.top_h), "over 0 and at most 1"),
            ("min_p", part(self.min_p), "from 0 to 1"),
            ("typical_p", above(0, self.typical_p) and part(self.typical_p), "over 0, at most 1"),
            ("epsilon_cutoff", part(self.epsilon_cutoff), "from 0 to 1"),
            ("eta_cutoff", part(self.eta_cutoff), "from 0 to 1"),
            ("seed", self.seed is None or 0 <= self.seed < 1 << 63, "from 0 to 2^63 - 1"),
            ("repetition_penalty", above(0, self.repetition_penalty), "> 0"),
            ("encoder_repetition_penalty", above(0, self.encoder_repetition_penalty), "> 0"),
            ("no_repeat_ngram_size", self.no_repeat_ngram_size >= 0, "from 0 up"),
            ("encoder_no_repeat_ngram_size", self.encoder_no_repeat_ngram_size >= 0, "from 0 up"),
            (
                "exponential_decay_length_penalty",
                decay[0] >= 0 and 0 < decay[1] <= 10,
                "a number of tokens from 0 up, and a base over 0 and at most 10",
            ),
        ]
        for name, valid, range_ in checks:
            if not valid:
                raise UsageError(f"{name} cannot be {getattr(self, name)!r}", f"it is {range_}")

    def _sampling(self) -> list[str]:
        """Return the settings of sampling that are set."""
        return [name for name in SAMPLING if getattr(self, name) is not None]

    @property
    def samples(self) -> bool:
        """``True`` if tokens are sampled."""
        if self.do_sample is None:
            return bool(self._sampling())
        return self.do_sample

    @property
    def longest(self) -> int:
        """Maximum number of new tokens, whatever the length of the prompt."""
        return self.max_new_tokens or self.max_length or DEFAULT_NEW_TOKENS

    def new_tokens(self, prompt: int) -> int:
        """Return the maximum number of new tokens after a prompt; below 1 if there is no room.

        Args:
            prompt: number of tokens of the decoder before the new ones.
        """
        if self.max_new_tokens is None and self.max_length is not None:
            return min(self.max_length - prompt, MAX_NEW_TOKENS)
        return self.longest


def cap_new_tokens(settings: GenerationConfig, decoder_limit: int | None) -> GenerationConfig:
    """Return settings with at most as many new tokens as a decoder after an encoder takes."""
    if decoder_limit is None or settings.longest <= decoder_limit:
        return settings
    # The last new token is not read; max_length counts the first token of the decoder.
    if settings.max_new_tokens is None and settings.max_length is not None:
        return replace(settings, max_length=decoder_limit + 1)
    return replace(settings, max_new_tokens=decoder_limit)


_TO_MOST = f"from 1 to {MAX_NEW_TOKENS}"
SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "top_h",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
)
BEAMS = ("length_penalty", "early_stopping")
TOKEN_KEYS = (
    "bad_words_ids",
    "sequence_bias",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "suppress_tokens",
    "begin_suppress_tokens",
    "eos_token_id",
    "bos_token_id",
    "decoder_start_token_id",
)


def _sequences(name: str, value: Any) -> list[tuple[int, ...]]:
    """Return the sequences of token ids in a value; a list of none has none."""
    if name == "bad_words_ids":
        return list(value)
    if name == "sequence_bias":
        return [tokens for tokens, _ in value]
    ids = (value,) if isinstance(value, int) else tuple(value)
    return [ids] if ids else []


def token_ids(value: TokenIds | None) -> tuple[int, ...]:
    """Return one token or several as a tuple; ``None`` as an empty one."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


@cache
def _types() -> dict[str, Any]:
    """Return the type of each setting."""
    hints = get_type_hints(GenerationConfig)
    return {field.name: hints[field.name] for field in fields(GenerationConfig)}


def generation_config(
    checkpoint_settings: Mapping[str, Any], options: Mapping[str, Any]
) -> GenerationConfig:
    """Return the settings of a call: its options, and the checkpoint's settings for all others.

    A checkpoint has them in transformers' ``generation_config.json``, older ones in
    ``config.json``. ``GENERATION_KEYS`` says what becomes of each key. This module does not
    import torch.

    Settings of the checkpoint that the options replace or make meaningless do not count, such
    as ``length_penalty`` without beams, or ``max_length`` next to ``max_new_tokens``. As in
    transformers, a checkpoint with ``do_sample`` and without ``top_k`` samples from 50 tokens.
    """
    options = {name: value for name, value in options.items() if value is not None}
    for name in options:
        if name not in _types():
            raise UsageError(
                f"generation has no setting {name!r}", f"there are {', '.join(_types())}"
            )
    if isinstance(options.get("sequence_bias"), Mapping):
        # In Python, transformers takes a mapping.
        options["sequence_bias"] = list(options["sequence_bias"].items())
    defaults = _defaults(checkpoint_settings, options)
    return GenerationConfig(**_convert_settings(defaults | options))


def _defaults(checkpoint_settings: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a checkpoint that count next to the options of a call."""
    replaced_names = set(options)
    for new_name, old_name in _REPLACES.items():
        if new_name in options:
            replaced_names.add(old_name)
    defaults = {}
    for name, value in checkpoint_settings.items():
        if name in _types() and name not in replaced_names:
            defaults[name] = value
    if defaults.get("do_sample"):
        defaults.setdefault("top_k", 50)
    settings = {**defaults, **options}
    has_beams = settings.get("num_beams", 1) != 1
    samples = settings.get("do_sample", any(name in options for name in SAMPLING))
    unused_names = set[str]()
    for name in ("top_k", "epsilon_cutoff", "eta_cutoff"):
        if defaults.get(name) == 0:
            unused_names.add(name)
    if not samples:
        unused_names.update((*SAMPLING, "do_sample"))
    if not has_beams:
        unused_names.update(BEAMS)
    if not has_beams and not samples:
        unused_names.add("num_return_sequences")
    if "max_new_tokens" in options and "min_new_tokens" in defaults:
        defaults["min_new_tokens"] = min(defaults["min_new_tokens"], options["max_new_tokens"])
    return {name: value for name, value in defaults.items() if name not in unused_names}


# A setting -> the checkpoint's setting that it replaces.
_REPLACES = {
    "max_new_tokens": "max_length",
    "max_length": "max_new_tokens",
    "min_new_tokens": "min_length",
    "min_length": "min_new_tokens",
}


def _convert_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in the types of their fields."""
    values = {}
    for name, value in settings.items():
        try:
            values[name] = msgspec.convert(value, _types()[name])
        except msgspec.ValidationError as error:
            raise UsageError(f"{name} cannot be {shown(value)}: {error}") from error
    return values


FROM_MODEL = "_from_model_config"
FORCE_BOS = "force_bos_token_to_be_generated"
_RULE = "a rule of generation, as in transformers"
_LENGTH = "a length of what is generated"
_SAMPLING = "a setting of sampling, where `do_sample` is true"
_BEAMS = "a setting of beam search"
_TOKEN = "a token that begins or ends what is generated"
_ASSISTED = "speeds generation up by another model or by the prompt; the result is the same"
_OUTPUTS = "chooses outputs of transformers' `generate`, not tokens"
_SPEED = "a setting of speed or memory; the result is the same"
_GONE = "a search that transformers 5 no longer has"
GENERATION_KEYS: FileKeys = {
    **dict.fromkeys(("max_length", "max_new_tokens", "min_length"), honoured(_LENGTH)),
    "min_new_tokens": honoured(_LENGTH),
    "do_sample": honoured("whether tokens are sampled"),
    "num_beams": honoured(_BEAMS),
    "length_penalty": honoured(_BEAMS),
    "early_stopping": honoured(_BEAMS),
    "num_return_sequences": honoured("the number of sequences for each prompt"),
    **{name: honoured(_SAMPLING) for name in SAMPLING if name != "seed"},
    **dict.fromkeys(
        (
            "repetition_penalty",
            "encoder_repetition_penalty",
            "no_repeat_ngram_size",
            "encoder_no_repeat_ngram_size",
            "bad_words_ids",
            "sequence_bias",
            "forced_bos_token_id",
            "forced_eos_token_id",
            "suppress_tokens",
            "begin_suppress_tokens",
            "exponential_decay_length_penalty",
            "remove_invalid_values",
            "renormalize_logits",
        ),
        honoured(_RULE),
    ),
    **dict.fromkeys(("eos_token_id", "bos_token_id", "decoder_start_token_id"), honoured(_TOKEN)),
    "pad_token_id": carried("fills rows after their end, which `generate` returns without"),
    "max_time": carried(
        "a limit on the seconds of a call, which makes results depend on the clock"
    ),
    **dict.fromkeys(
        (
            "is_assistant",
            "num_assistant_tokens",
            "num_assistant_tokens_schedule",
            "assistant_confidence_threshold",
            "prompt_lookup_num_tokens",
            "max_matching_ngram_size",
            "assistant_early_exit",
            "assistant_lookbehind",
            "target_lookbehind",
            "use_mtp",
            "speculation_type",
        ),
        carried(_ASSISTED),
    ),
    **dict.fromkeys(
        (
            "use_cache",
            "cache_implementation",
            "cache_config",
            "max_cache_len",
            "compile_config",
            "disable_compile",
            "continuous_batching_config",
            "low_memory",
            "prefill_chunk_size",
        ),
        carried(_SPEED),
    ),
    **dict.fromkeys(
        (
            "output_attentions",
            "output_hidden_states",
            "output_scores",
            "output_logits",
            "return_dict_in_generate",
        ),
        carried(_OUTPUTS),
    ),
    FORCE_BOS: carried(
        "the older name of `forced_bos_token_id`, used if the keys come from `config.json`; "
        "otherwise ignored, as in transformers"
    ),
    FROM_MODEL: carried("says that the keys come from `config.json`"),
    "transformers_version": carried("provenance"),
    "_commit_hash": carried("provenance"),
    "stop_strings": refused("ends at strings; `zoo` ends at tokens"),
    "token_healing": refused("changes the prompt"),
    "guidance_scale": refused("mixes in scores without the prompt"),
    "watermarking_config": refused("favours tokens by a secret key"),
    "assistant_ensemble_weight": refused("mixes in scores of another model"),
    **dict.fromkeys(
        (
            "penalty_alpha",
            "dola_layers",
            "diversity_penalty",
            "num_beam_groups",
            "constraints",
            "force_words_ids",
        ),
        refused(_GONE),
    ),
}
GENERATION_PRECEDENCE = (
    Precedence(
        "settings of generation, such as `bos_token_id`, `eos_token_id` and `max_length`",
        ("`generation_config.json`", "`config.json`"),
        "the latter counts only where there is no `generation_config.json`, for all settings",
    ),
    Precedence(
        "the first token of a target",
        (f"`{FORCE_BOS}`", "`forced_bos_token_id`"),
        f"the former, where it is true and the keys come from `config.json`, or from a file with "
        f"`{FROM_MODEL}`, means `bos_token_id`; in other files it is not read",
    ),
)
# values of refused keys that mean "not used", next to null
_UNUSED: Mapping[str, tuple[Any, ...]] = {
    "stop_strings": ([], ""),
    "token_healing": (False,),
    "guidance_scale": (1, 1.0),
    "penalty_alpha": (0, 0.0),
    "diversity_penalty": (0, 0.0),
    "num_beam_groups": (1,),
    "constraints": ([],),
    "force_words_ids": ([],),
}


def generation_of_model_config(hub: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings of generation in ``config.json``, where older checkpoints have them.

    As in transformers, they count only where there is no ``generation_config.json``.
    """
    values = {key: value for key, value in hub.items() if key in GENERATION_KEYS}
    settings: dict[str, Any] = {FROM_MODEL: True}
    for key, value in checked_generation_config({**values, FROM_MODEL: True}, path).items():
        if GENERATION_KEYS[key].treatment is Treatment.HONOURED:
            settings[key] = value
    return settings if len(settings) > 1 else {}


def checked_generation_config(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings of a file; ``null`` means not set."""
    settings = {}
    if values.get(FROM_MODEL) and values.get(FORCE_BOS):
        if values.get("bos_token_id") is None:
            raise VerificationError(
                f"{path}: {FORCE_BOS} is true, and no bos_token_id says which token that is",
                "state bos_token_id, or leave the key out",
            )
        values = {**values, "forced_bos_token_id": values["bos_token_id"]}
    for key, value in values.items():
        entry = GENERATION_KEYS.get(key)
        if value is None:
            continue
        if entry and entry.treatment is Treatment.REFUSED and value not in _UNUSED.get(key, ()):
            raise VerificationError(
                f"{path}: {key} = {shown(value)} is not implemented: it {entry.reason}",
                f"remove {key} from the file, which generates other texts then",
            )
        settings[key] = value
    try:
        _convert_settings({key: value for key, value in settings.items() if key in _types()})
        generation_config(settings, {})
    except UsageError as error:
        raise VerificationError(f"{path}: {error.what}", error.hint) from error
    return settings


def call_settings(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the fields of ``GenerationConfig`` in a file, for a call."""
    for name in values:
        if name not in GENERATION_KEYS and name not in _types():
            raise UsageError(
                f"{path}: {shown(name)} is not a setting of generation",
                did_you_mean(name, list(_types())) or "leave it out",
            )
    settings = checked_generation_config(values, path)
    return {name: value for name, value in settings.items() if name in _types()}

"""Properties that ``tokenizer.json`` lacks: roles of special tokens, and maximum length."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec

from zoo.errors import VerificationError
from zoo.io.file_keys import Treatment
from zoo.io.json import JsonStruct
from zoo.tokenizers.config_files import (
    EXTRA_KEYS,
    ROLES,
    TokenizerFilesConfig,
    chat_template,
    without_flags,
)
from zoo.tokenizers.keys import FIELDS
from zoo.tokenizers.keys import TOKENIZER_CONFIG_KEYS as KEYS
from zoo.tokenizers.source_files import TOKENIZER_CONFIG, SourceFiles
from zoo.tokenizers.splitters import AnySplitter
from zoo.tokenizers.targets import pack
from zoo.tokenizers.template import sets_token_types
from zoo.tokenizers.tokenizer_json import definition_of, read_sections
from zoo.tokenizers.wordpiece import DEFAULTS, OPTIONS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Class of the model -> role -> default special token.
CONVENTIONS: Mapping[str, Mapping[str, str]] = {"WordPiece": DEFAULTS}
Side: TypeAlias = Literal["left", "right"]
MAX_TOKENS_SHOWN = 5  # Tokens in a message.
NO_LIMIT = 10**9  # A model_max_length of at least this means "no limit".


class TokenizerInfo(JsonStruct):
    """Properties of a tokenizer that ``tokenizer.json`` has no field for."""

    # role (``pad``, ``mask``, ``cls``, ``sep``, ``unk``, ``bos``, ``eos``) -> token
    special: dict[str, str]
    max_tokens: int | None = None  # maximum input length of the model in tokens, or ``None``
    truncation_side: Side = "right"  # side on which texts are cut
    split_special_tokens: bool = False  # special tokens in a text are split like other text
    # the texts of a pair have the token types of the template; otherwise all are 0, since the model
    # is not given them
    token_types: bool = True
    # keys of ``tokenizer_config.json`` without a field, for the way back
    extra_config: dict[str, Any] = msgspec.field(default_factory=dict)
    # ``truncation`` and ``padding`` of the source's ``tokenizer.json``, for the way back: ours has
    # none, since these are options of each run
    sections: dict[str, Any] = msgspec.field(default_factory=dict)
    # the tokenizer of targets, where sources have another one; see ``zoo.tokenizers.targets``
    targets: str | None = None
    # what splits texts before ``tokenizer.json`` reads the parts; ``None`` for nothing
    splitter: AnySplitter | None = None

    def cut_at(self, tokens: int | None) -> "TokenizerInfo":
        """Return the properties with truncation in ``tokenizer.json``, at a number of tokens."""
        sections = dict(self.sections)
        truncation = sections.pop("truncation", {})
        if tokens is not None:
            defaults = {
                "direction": self.truncation_side.title(),
                "strategy": "LongestFirst",
                "stride": 0,
            }
            sections["truncation"] = {**defaults, **truncation, "max_length": tokens}
        return msgspec.structs.replace(self, sections=sections)


def tokenizer_info(
    files: SourceFiles,
    tokenizer: "Tokenizer",
    roles: Mapping[str, str] | None = None,
    targets: "Tokenizer | None" = None,
    splitter: AnySplitter | None = None,
) -> TokenizerInfo:
    """Read what the files of a tokenizer say beyond its ``tokenizer.json``.

    Args:
        files: the files.
        tokenizer: the tokenizer that they describe.
        roles: default special tokens, role -> token.
        targets: the tokenizer of targets, where it differs; see ``Family.target_tokenizer``.
        splitter: what splits texts before; see ``Family.splitter``.
    """
    settings = TokenizerFilesConfig.read(files)
    sections = read_sections(files)
    defaults = dict(roles or CONVENTIONS.get(type(tokenizer.model).__name__, {}))
    if settings.is_generic and "padding" in sections:
        defaults["pad"] = sections["padding"]["pad_token"]
    names = {**defaults, **{role: token.content for role, token in settings.role_tokens.items()}}
    unknown = getattr(tokenizer.model, "unk_token", None)
    if unknown and tokenizer.token_to_id(names.get("unk", "")) is None:
        names["unk"] = unknown
    special = {role: names[role] for role in ROLES if role in names}
    section_side: str = sections.get("truncation", {}).get("direction", "Right").lower()
    side: Any = settings.option("truncation_side", (str,), section_side)
    if side not in get_args(Side):
        raise VerificationError(
            f"{settings.origin}/{TOKENIZER_CONFIG}: truncation_side = {side!r:.100}",
            "only 'left' and 'right' are sides",
        )
    for role, token in list(special.items()):
        if tokenizer.token_to_id(token) is None:
            del special[role]
    from tokenizers import normalizers

    written_keys = {*FIELDS, *(f"{role}_token" for role in ROLES)}
    for key, entry in KEYS.items():
        if entry.treatment == Treatment.WRITTEN_ANEW:
            written_keys.add(key)
    if isinstance(tokenizer.normalizer, normalizers.BertNormalizer):
        written_keys.update(OPTIONS)
    extra = {key: value for key, value in settings.all_keys.items() if key not in written_keys}
    for key in EXTRA_KEYS:
        if extra.get(key):
            # Tokens have their flags in ``tokenizer.json``.
            extra[key] = without_flags(extra[key])
    return TokenizerInfo(
        special=special,
        max_tokens=_max_tokens(settings.config, str(files.path(TOKENIZER_CONFIG))),
        truncation_side=side,
        split_special_tokens=settings.option("split_special_tokens", (bool,), False),
        token_types=_has_token_types(settings, tokenizer),
        extra_config=extra | chat_template(files),
        sections=sections,
        targets=None if targets is None else pack(targets.to_str().encode()),
        splitter=splitter,
    )


def check_vocabulary(tokenizer: "Tokenizer", vocab_size: int, origin: str) -> None:
    """Check that every token id has a row in the token embedding."""
    ids = tokenizer.get_vocab()
    highest = max(ids.values(), default=-1)
    if highest < vocab_size:
        return
    beyond = sorted((number, token) for token, number in ids.items() if number >= vocab_size)
    descriptions = [f"{token!r:.100} (id {number})" for number, token in beyond[:MAX_TOKENS_SHOWN]]
    if len(beyond) > MAX_TOKENS_SHOWN:
        descriptions.append(f"{len(beyond) - MAX_TOKENS_SHOWN:,} more")
    added_ids = tokenizer.get_added_tokens_decoder()
    hint = "tokenizer and weights belong to different checkpoints"
    if all(number in added_ids for number, _ in beyond):
        hint = (
            f"add rows with model.resize_token_embeddings({highest + 1}) of transformers, or "
            "remove what is not the model's from the tokenizer's files"
        )
    raise VerificationError(
        f"{origin}: no row of the model's token embedding, which has {vocab_size:,}, is for "
        f"{', '.join(descriptions)}",
        hint,
    )


def _has_token_types(settings: TokenizerFilesConfig, tokenizer: "Tokenizer") -> bool:
    """Return whether the model is given the types that the tokenizer's template sets, if any."""
    names = settings.option("model_input_names", (list, type(None)), None)
    if names is None or "token_type_ids" in names:
        return True
    ends = definition_of(tokenizer.post_processor)
    return ends is None or not sets_token_types(ends)


def check_template(tokenizer: "Tokenizer", vocab_size: int, types: int | None, origin: str) -> None:
    """Check that ids and types of the template of special tokens have rows in their tables."""
    ends = definition_of(tokenizer.post_processor)
    for token, number, token_type in () if ends is None else _template_tokens(ends):
        if number >= vocab_size:
            raise VerificationError(
                f"{origin}: the template puts {token!r} with the id {number} around texts, and the "
                f"table of tokens (vocab_size) has {vocab_size} rows",
                "tokenizer and weights belong to different checkpoints: give another --tokenizer",
            )
        if types is not None and token_type >= types:
            raise VerificationError(
                f"{origin}: the template gives {token!r} the token type {token_type}, and the "
                f"table of types (type_vocab_size) has {types} rows",
                "correct post_processor in tokenizer.json, or give another --tokenizer",
            )


def _template_tokens(processor: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield token, id and type of each part of a post-processor; texts have the id 0."""
    match processor.get("type"):
        case "Sequence":
            for part in processor["processors"]:
                yield from _template_tokens(part)
        case "BertProcessing" | "RobertaProcessing":
            token_type = int(processor["type"] == "BertProcessing")  # of the second text
            yield from ((*processor[role], token_type) for role in ("cls", "sep"))
        case "TemplateProcessing":
            ids = {token: item["ids"] for token, item in processor["special_tokens"].items()}
            for piece in (*processor["single"], *processor["pair"]):
                ((_, part),) = piece.items()
                for number in ids.get(part["id"], (0,)):
                    yield part["id"], number, part["type_id"]


def _max_tokens(config: Mapping[str, Any], origin: str) -> int | None:
    value = config.get("model_max_length", config.get("max_len"))
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 1:
        raise VerificationError(
            f"{origin}: model_max_length = {value!r:.100} is not a number of tokens"
        )
    return int(value) if value < NO_LIMIT else None

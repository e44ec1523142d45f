"""Configuration files of a tokenizer: special tokens, added tokens, options."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.tokenizers.keys import NOT_USED
from zoo.tokenizers.source_files import (
    ADDED_TOKENS,
    CHAT_TEMPLATE,
    CHAT_TEMPLATES,
    SPECIAL_TOKENS,
    TOKENIZER_CONFIG,
    TOKENIZER_JSON,
    SourceFiles,
)

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

CLASS_KEY = "tokenizer_class"
MODEL_CONFIG = "config.json"
DECODER_KEY = "added_tokens_decoder"
# Keys of special tokens without a role. The second is an older name of the first.
EXTRA_KEYS = ("extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens")
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
# Classes that load tokenizer.json without applying the options of other files.
GENERIC_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend")


@dataclass(frozen=True)
class AddedTokenSpec:
    """A token that is matched in the text before it is split."""

    content: str  # text of the token
    # ``lstrip`` and ``rstrip`` (the match includes spaces before or after it), ``single_word``
    # (matches whole words only), ``normalized`` (matched in normalized text) and ``special``
    # (skipped in decoding)
    flags: Mapping[str, bool]
    id: int | None = None  # token id in a configuration file, or ``None``

    def build(self) -> "AddedToken":
        """Return the ``AddedToken`` of the ``tokenizers`` library."""
        from tokenizers import AddedToken

        return AddedToken(self.content, **dict(self.flags))


@dataclass(frozen=True)
class TokenizerFilesConfig:
    """Merged contents of the configuration files of one tokenizer."""

    # Several files may define the same token. Precedence is as on the Hub: ``added_tokens_decoder``
    # in ``tokenizer_config.json`` overrides the older ``special_tokens_map.json`` and
    # ``added_tokens.json``.

    origin: str  # directory of the files, for messages
    config: Mapping[str, Any]  # contents of ``tokenizer_config.json``
    # the same with the keys of ``special_tokens_map.json``, where that file counts
    all_keys: Mapping[str, Any]
    # role (``pad``, ``mask``, and any other ``<name>_token`` key) -> token
    role_tokens: Mapping[str, AddedTokenSpec]
    extra_tokens: tuple[AddedTokenSpec, ...] = ()  # special tokens without a role
    # tokens with an id in ``tokenizer_config.json`` or ``added_tokens.json``
    added_tokens: tuple[AddedTokenSpec, ...] = ()
    class_name: str | None = None  # see ``_class_name``

    @classmethod
    def read(cls, files: SourceFiles) -> "TokenizerFilesConfig":
        """Read the configuration files of a directory."""
        config = files.json_if_any(TOKENIZER_CONFIG)
        has_decoder = DECODER_KEY in config
        older_config = {} if has_decoder else files.json_if_any(SPECIAL_TOKENS)
        origin = str(files.directory)
        for key, values in NOT_USED.items():
            if config.get(key) not in values:
                raise VerificationError(
                    f"{files.path(TOKENIZER_CONFIG)}: {key} = {config[key]!r:.100} is not "
                    "implemented: the tokenizer is defined by code, which is not run",
                    f"if it is equal to its {TOKENIZER_JSON}, remove the key",
                )
        all_keys = {**config, **older_config}
        role_tokens = {}
        for key, value in all_keys.items():
            if key.endswith("_token") and isinstance(value, str | dict):
                role_tokens[key.removesuffix("_token")] = parse_special_token(
                    value, f"{origin}: {key}"
                )
        extra_tokens = (*_extra_tokens(config, origin), *_extra_tokens(older_config, origin))
        if has_decoder:
            added_tokens = tuple(_decoder_tokens(config[DECODER_KEY], f"{origin}: {DECODER_KEY}"))
        else:
            special_texts = {token.content for token in (*role_tokens.values(), *extra_tokens)}
            added_tokens = tuple(_added_tokens(files, special_texts))
        return cls(
            origin=origin,
            config=config,
            all_keys=all_keys,
            role_tokens=role_tokens,
            extra_tokens=extra_tokens,
            added_tokens=added_tokens,
            class_name=_class_name(files),
        )

    @property
    def is_generic(self) -> bool:
        """``True`` if the tokenizer class applies no options to ``tokenizer.json``."""
        return self.class_name in GENERIC_CLASSES

    def option(self, name: str, accepted_types: tuple[type, ...], default: Any) -> Any:
        """Return an option of ``tokenizer_config.json``."""
        value = self.config.get(name, default)
        if not isinstance(value, accepted_types):
            raise VerificationError(f"{self.origin}/{TOKENIZER_CONFIG}: {name} = {value!r:.100}")
        return value

    def add_to(self, tokenizer: "Tokenizer", defaults: Sequence[AddedTokenSpec] = ()) -> None:
        """Add missing tokens to a tokenizer, and set the flags of existing ones.

        Args:
            tokenizer: the tokenizer, which is changed.
            defaults: tokens that are added if the vocabulary has them.
        """
        existing = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        numbered = sorted(self.added_tokens, key=lambda token: token.id or 0)
        if DECODER_KEY not in self.config:
            numbered = [token for token in numbered if token.content not in existing]
        existing |= {token.content for token in numbered}
        defaults = [t for t in defaults if tokenizer.token_to_id(t.content) is not None]
        missing: dict[str, AddedTokenSpec] = {}
        for token in (*self.role_tokens.values(), *defaults, *self.extra_tokens):
            if token.content not in existing:
                missing.setdefault(token.content, token)  # the first source has precedence
        new_tokens = [token.build() for token in (*numbered, *missing.values())]
        if new_tokens:
            tokenizer.add_tokens(new_tokens)
        for token in numbered:
            value = tokenizer.token_to_id(token.content)
            if value != token.id:
                raise VerificationError(
                    f"{self.origin} gives {token.content!r:.100} the id {token.id}, "
                    f"and its vocabulary the id {value}"
                )


def tokenizer_class(files: SourceFiles) -> str | None:
    """Return the class of the Hub's library that reads the files; ``None`` if it may be any."""
    # A class that applies no options says nothing about the kind of the tokenizer.
    name = _class_name(files)
    return None if name in GENERIC_CLASSES else name


def parse_special_token(value: Any, origin: str) -> AddedTokenSpec:
    """Parse a special token: a string, or an object with flags."""
    if isinstance(value, str):
        return AddedTokenSpec(value, {"special": True, "normalized": False})
    if isinstance(value, dict):
        return _parse_token({**value, "special": True}, origin)
    raise VerificationError(f"{origin} = {value!r:.100} is not a token")


def without_flags(tokens: Any) -> Any:
    """Return special tokens without a role, a list or an object, as strings."""
    if isinstance(tokens, dict):
        return {name: parse_special_token(value, name).content for name, value in tokens.items()}
    return [parse_special_token(value, "a special token").content for value in tokens]


def chat_template(files: SourceFiles) -> dict[str, Any]:
    """Return the key ``chat_template`` of templates in files of their own, if there are any."""
    # Such files override the key, as in transformers.
    templates = {}
    if files.has(CHAT_TEMPLATE):
        templates["default"] = files.text(CHAT_TEMPLATE)
    for path in files.matching(CHAT_TEMPLATES):
        templates[Path(path).stem] = files.text(path)
    if not templates:
        return {}
    if [*templates] == ["default"]:
        return {"chat_template": templates["default"]}
    records = [{"name": name, "template": text} for name, text in templates.items()]
    return {"chat_template": records}


def _class_name(files: SourceFiles) -> str | None:
    """Return the class that the files name, without ``Fast``."""
    # As in the Hub's library, ``config.json`` counts where ``tokenizer_config.json`` names none.
    for name in (TOKENIZER_CONFIG, MODEL_CONFIG):
        class_name = files.json_if_any(name).get(CLASS_KEY)
        if isinstance(class_name, str) and class_name:
            return class_name.removesuffix("Fast")
    return None


def _parse_token(value: Any, origin: str, number: int | None = None) -> AddedTokenSpec:
    """Parse an object with the text and the flags of a token."""
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, str) or not content:
        raise VerificationError(f"{origin} = {value!r:.100} is not a token")
    flags = {name: value[name] for name in FLAGS if name in value}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise VerificationError(
            f"{origin} = {value!r:.100} has a flag that is neither true nor false"
        )
    return AddedTokenSpec(content, flags, number)


def _extra_tokens(config: Mapping[str, Any], origin: str) -> Iterable[AddedTokenSpec]:
    """Yield the special tokens without a role, from a list or an object name -> token."""
    newer_key, older_key, _ = EXTRA_KEYS
    for key in EXTRA_KEYS:
        if key == older_key and config.get(newer_key):
            continue
        tokens = config.get(key) or ()
        if isinstance(tokens, dict):
            tokens = list(tokens.values())
        if not isinstance(tokens, list | tuple):
            raise VerificationError(f"{origin}: {key} = {tokens!r:.100} is not a list of tokens")
        for value in tokens:
            yield parse_special_token(value, f"{origin}: {key}")


def _decoder_tokens(tokens: Any, origin: str) -> Iterable[AddedTokenSpec]:
    """Yield the tokens of an object id -> token."""
    if not isinstance(tokens, dict):
        raise VerificationError(f"{origin} is not an object of id to token")
    for number, value in tokens.items():
        if not (number.isascii() and number.isdecimal() and len(number) < 20):
            raise VerificationError(f"{origin} has the key {number!r:.100}, which is not an id")
        yield _parse_token(value, origin, int(number))


def _added_tokens(files: SourceFiles, special_texts: set[str]) -> Iterable[AddedTokenSpec]:
    """Yield the tokens of ``added_tokens.json``, which maps token -> id without flags."""
    for content, number in files.json_if_any(ADDED_TOKENS).items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0 or not content:
            raise VerificationError(
                f"{files.path(ADDED_TOKENS)}: {content!r:.100} = {number!r:.100}"
            )
        is_special = content in special_texts
        yield AddedTokenSpec(content, {"special": is_special, "normalized": not is_special}, number)

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

CLASS = "tokenizer_class"
MODEL_CONFIG = "config.json"
DECODER = "added_tokens_decoder"
# special tokens without a role; the second is an older name of the first
EXTRA = ("extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens")
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
# Classes that load tokenizer.json without applying the options of other files.
GENERIC = ("PreTrainedTokenizer", "TokenizersBackend")


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
    stated: Mapping[str, Any]  # keys of both files, if the second counts
    # role (``pad``, ``mask``, and any other ``<name>_token`` key) -> token
    named: Mapping[str, AddedTokenSpec]
    extra: tuple[AddedTokenSpec, ...] = ()  # special tokens without a role
    # tokens with an id in ``tokenizer_config.json`` or ``added_tokens.json``
    added: tuple[AddedTokenSpec, ...] = ()
    class_name: str | None = None  # see ``_class_name``

    @classmethod
    def read(cls, files: SourceFiles) -> "TokenizerFilesConfig":
        """Read the configuration files of a directory."""
        config = files.json_if_any(TOKENIZER_CONFIG)
        stated = DECODER in config
        older = {} if stated else files.json_if_any(SPECIAL_TOKENS)
        origin = str(files.directory)
        for key, values in NOT_USED.items():
            if config.get(key) not in values:
                raise VerificationError(
                    f"{files.path(TOKENIZER_CONFIG)}: {key} = {config[key]!r:.100} is not "
                    "implemented: the tokenizer is defined by code, which is not run",
                    f"if it is equal to its {TOKENIZER_JSON}, remove the key",
                )
        merged = {**config, **older}
        named = {
            key.removesuffix("_token"): special(value, f"{origin}: {key}")
            for key, value in merged.items()
            if key.endswith("_token") and isinstance(value, str | dict)
        }
        extra = tuple(_extra(config, origin)) + tuple(_extra(older, origin))
        if stated:
            added = tuple(_decoder(config[DECODER], f"{origin}: {DECODER}"))
        else:
            names = {token.content for token in (*named.values(), *extra)}
            added = tuple(_added_tokens(files, names))
        return cls(origin, config, merged, named, extra, added, _class_name(files))

    @property
    def generic(self) -> bool:
        """``True`` if the tokenizer class applies no options to ``tokenizer.json``."""
        return self.class_name in GENERIC

    def option(self, name: str, kinds: tuple[type, ...], default: Any) -> Any:
        """Return an option of ``tokenizer_config.json``."""
        value = self.config.get(name, default)
        if not isinstance(value, kinds):
            raise VerificationError(f"{self.origin}/{TOKENIZER_CONFIG}: {name} = {value!r:.100}")
        return value

    def add_to(self, tokenizer: "Tokenizer", defaults: Sequence[AddedTokenSpec] = ()) -> None:
        """Add missing tokens to a tokenizer, and set the flags of existing ones."""
        # Of ``defaults``, those in the vocabulary are added
        known = [t for t in defaults if tokenizer.token_to_id(t.content) is not None]
        existing = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        stated = sorted(self.added, key=lambda token: token.id or 0)
        if DECODER not in self.config:
            stated = [token for token in stated if token.content not in existing]
        existing |= {token.content for token in stated}
        missing: dict[str, AddedTokenSpec] = {}
        for token in (*self.named.values(), *known, *self.extra):
            if token.content not in existing:
                missing.setdefault(token.content, token)  # the first source has precedence
        if new := [token.build() for token in (*stated, *missing.values())]:
            tokenizer.add_tokens(new)
        for token in stated:
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
    return None if name in GENERIC else name


def special(value: Any, origin: str) -> AddedTokenSpec:
    """Parse a special token: a string, or an object with flags."""
    if isinstance(value, str):
        return AddedTokenSpec(value, {"special": True, "normalized": False})
    if isinstance(value, dict):
        return _token({**value, "special": True}, origin)
    raise VerificationError(f"{origin} = {value!r:.100} is not a token")


def without_flags(tokens: Any) -> Any:
    """Return special tokens without a role, a list or an object, as strings."""
    if isinstance(tokens, dict):
        return {name: special(value, name).content for name, value in tokens.items()}
    return [special(value, "a special token").content for value in tokens]


def chat_template(files: SourceFiles) -> dict[str, Any]:
    """Return the key ``chat_template`` of templates in files of their own, if there are any."""
    # Such files override the key, as in transformers
    names = {"default": CHAT_TEMPLATE} if files.has(CHAT_TEMPLATE) else {}
    names |= {Path(name).stem: name for name in files.matching(CHAT_TEMPLATES)}
    templates = {name: files.text(path) for name, path in names.items()}
    if [*templates] == ["default"]:
        return {"chat_template": templates["default"]}
    listed = [{"name": name, "template": text} for name, text in templates.items()]
    return {"chat_template": listed} if listed else {}


def _class_name(files: SourceFiles) -> str | None:
    """Return the class that the files name, without ``Fast``."""
    # As in the Hub's library, ``config.json`` counts where ``tokenizer_config.json`` names none.
    for name in (TOKENIZER_CONFIG, MODEL_CONFIG):
        stated = files.json_if_any(name).get(CLASS)
        if isinstance(stated, str) and stated:
            return stated.removesuffix("Fast")
    return None


def _token(value: Any, origin: str, number: int | None = None) -> AddedTokenSpec:
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, str) or not content:
        raise VerificationError(f"{origin} = {value!r:.100} is not a token")
    flags = {name: value[name] for name in FLAGS if name in value}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise VerificationError(
            f"{origin} = {value!r:.100} has a flag that is neither true nor false"
        )
    return AddedTokenSpec(content, flags, number)


def _extra(config: Mapping[str, Any], origin: str) -> Iterable[AddedTokenSpec]:
    """Yield the special tokens without a role, from a list or an object name -> token."""
    newer, older, _ = EXTRA
    for key in EXTRA:
        tokens = () if key == older and config.get(newer) else config.get(key) or ()
        if not isinstance(tokens, list | tuple | dict):
            raise VerificationError(f"{origin}: {key} = {tokens!r:.100} is not a list of tokens")
        for value in tokens.values() if isinstance(tokens, dict) else tokens:
            yield special(value, f"{origin}: {key}")


def _decoder(tokens: Any, origin: str) -> Iterable[AddedTokenSpec]:
    if not isinstance(tokens, dict):
        raise VerificationError(f"{origin} is not an object of id to token")
    for number, value in tokens.items():
        if not (number.isascii() and number.isdecimal() and len(number) < 20):
            raise VerificationError(f"{origin} has the key {number!r:.100}, which is not an id")
        yield _token(value, origin, int(number))


def _added_tokens(files: SourceFiles, names: set[str]) -> Iterable[AddedTokenSpec]:
    """Yield the tokens of ``added_tokens.json``, which maps token -> id without flags."""
    for content, number in files.json_if_any(ADDED_TOKENS).items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0 or not content:
            raise VerificationError(
                f"{files.path(ADDED_TOKENS)}: {content!r:.100} = {number!r:.100}"
            )
        named = content in names
        yield AddedTokenSpec(content, {"special": named, "normalized": not named}, number)

"""What the files beside a vocabulary say: special tokens, added tokens, options.

They have grown for years, and several may say the same thing. The order in which they are heard
is the Hub's: ``added_tokens_decoder`` in ``tokenizer_config.json`` makes the older
``special_tokens_map.json`` and ``added_tokens.json`` void.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.tokenizers.source_files import (
    ADDED_TOKENS,
    SPECIAL_TOKENS,
    TOKENIZER_CONFIG,
    SourceFiles,
)

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

DECODER = "added_tokens_decoder"
EXTRA = ("additional_special_tokens", "extra_special_tokens")
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
# Names of classes that take tokenizer.json as it stands, whatever else the files say.
GENERIC = ("PreTrainedTokenizer", "TokenizersBackend")


@dataclass(frozen=True)
class AddedTokenSpec:
    """A token that is looked for in the text itself, before any splitting.

    Attributes:
        content: the text to look for.
        flags: whether it takes the spaces before it or after it along (``lstrip``, ``rstrip``),
            must be a word of its own (``single_word``), is looked for in normalized text
            (``normalized``), and is left out of decoded text (``special``).
        id: the id that a file claims for it.
    """

    content: str
    flags: Mapping[str, bool]
    id: int | None = None

    def build(self) -> "AddedToken":
        """Return the library's object."""
        from tokenizers import AddedToken

        return AddedToken(self.content, **dict(self.flags))


@dataclass(frozen=True)
class TokenizerFilesConfig:
    """The side files of one tokenizer, put together.

    Attributes:
        where: the directory, for messages.
        config: ``tokenizer_config.json``.
        named: role (``pad``, ``mask``, and any other ``<name>_token`` key) -> token.
        extra: further special tokens, without a role.
        added: tokens that ``tokenizer_config.json`` or ``added_tokens.json`` list with an id.
    """

    where: str
    config: Mapping[str, Any]
    named: Mapping[str, AddedTokenSpec]
    extra: tuple[AddedTokenSpec, ...] = ()
    added: tuple[AddedTokenSpec, ...] = ()

    @classmethod
    def read(cls, files: SourceFiles) -> "TokenizerFilesConfig":
        """Read a directory's side files.

        Raises:
            VerificationError: one of them is malformed.
        """
        config = files.json_if_any(TOKENIZER_CONFIG)
        stated = DECODER in config
        older = {} if stated else files.json_if_any(SPECIAL_TOKENS)
        where = str(files.directory)
        named = {
            key.removesuffix("_token"): special(value, f"{where}: {key}")
            for key, value in {**config, **older}.items()
            if key.endswith("_token") and isinstance(value, str | dict)
        }
        extra = tuple(_extra(config, where)) + tuple(_extra(older, where))
        if stated:
            added = tuple(_decoder(config[DECODER], f"{where}: {DECODER}"))
        else:
            names = {token.content for token in (*named.values(), *extra)}
            added = tuple(_added_tokens(files, names))
        return cls(where, config, named, extra, added)

    @property
    def generic(self) -> bool:
        """Whether the configuration asks for ``tokenizer.json`` as it stands."""
        name = self.config.get("tokenizer_class")
        return isinstance(name, str) and name.removesuffix("Fast") in GENERIC

    def option(self, name: str, kinds: tuple[type, ...], default: Any) -> Any:
        """Return an option of ``tokenizer_config.json``.

        Raises:
            VerificationError: it is of another type.
        """
        value = self.config.get(name, default)
        if not isinstance(value, kinds):
            raise VerificationError(f"{self.where}/{TOKENIZER_CONFIG}: {name} = {value!r:.100}")
        return value

    def add_to(self, tokenizer: "Tokenizer", usual: Sequence[AddedTokenSpec] = ()) -> None:
        """Add the tokens that the tokenizer lacks, and change the flags of those it has.

        Args:
            tokenizer: what to change.
            usual: special tokens that need not be named in any file.

        Raises:
            VerificationError: a token gets another id than the files claim.
        """
        known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        stated = sorted(self.added, key=lambda token: token.id or 0)
        if DECODER not in self.config:
            stated = [token for token in stated if token.content not in known]
        known |= {token.content for token in stated}
        missing: dict[str, AddedTokenSpec] = {}
        for token in (*self.named.values(), *usual, *self.extra):
            if token.content not in known:
                missing.setdefault(token.content, token)  # the first knows its flags best
        if new := [token.build() for token in (*stated, *missing.values())]:
            tokenizer.add_tokens(new)
        for token in stated:
            found = tokenizer.token_to_id(token.content)
            if found != token.id:
                raise VerificationError(
                    f"{self.where} gives {token.content!r:.100} the id {token.id}, "
                    f"and its vocabulary the id {found}"
                )


def special(value: Any, where: str) -> AddedTokenSpec:
    """Read a special token: its text alone, or an object with flags.

    Raises:
        VerificationError: it is neither.
    """
    if isinstance(value, str):
        return AddedTokenSpec(value, {"special": True, "normalized": False})
    if isinstance(value, dict):
        return _token({**value, "special": True}, where)
    raise VerificationError(f"{where} = {value!r:.100} is no token")


def _token(value: Any, where: str, number: int | None = None) -> AddedTokenSpec:
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, str) or not content:
        raise VerificationError(f"{where} = {value!r:.100} is no token")
    flags = {name: value[name] for name in FLAGS if name in value}
    if not all(isinstance(flag, bool) for flag in flags.values()):
        raise VerificationError(
            f"{where} = {value!r:.100} has a flag that is neither true nor false"
        )
    return AddedTokenSpec(content, flags, number)


def _extra(config: Mapping[str, Any], where: str) -> Iterable[AddedTokenSpec]:
    """Special tokens without a role: a list, or an object of name to token."""
    for key in EXTRA:
        found = config.get(key) or ()
        if not isinstance(found, list | tuple | dict):
            raise VerificationError(f"{where}: {key} = {found!r:.100} is no list of tokens")
        for value in found.values() if isinstance(found, dict) else found:
            yield special(value, f"{where}: {key}")


def _decoder(found: Any, where: str) -> Iterable[AddedTokenSpec]:
    if not isinstance(found, dict):
        raise VerificationError(f"{where} is no object of id to token")
    for number, value in found.items():
        if not (number.isascii() and number.isdecimal() and len(number) < 20):
            raise VerificationError(f"{where} has the key {number!r:.100}, which is no id")
        yield _token(value, where, int(number))


def _added_tokens(files: SourceFiles, names: set[str]) -> Iterable[AddedTokenSpec]:
    """``added_tokens.json``: token to id, without flags."""
    for content, number in files.json_if_any(ADDED_TOKENS).items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0 or not content:
            raise VerificationError(
                f"{files.path(ADDED_TOKENS)}: {content!r:.100} = {number!r:.100}"
            )
        named = content in names
        yield AddedTokenSpec(content, {"special": named, "normalized": not named}, number)

"""Tokenizers whose tokens are the bytes of a text, which need no vocabulary file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zoo.tokenizers.config_files import TokenizerFilesConfig, parse_special_token
from zoo.tokenizers.source_files import SourceFiles
from zoo.tokenizers.special_tokens import tokens_by_role
from zoo.tokenizers.template import Template
from zoo.tokenizers.tokenizer_json import finalize

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def byte_tokenizer(
    files: SourceFiles,
    *,
    roles: Mapping[str, str],
    first: Sequence[str],
    last: Sequence[str],
    template: Template,
) -> "Tokenizer":
    """Build a tokenizer of the 256 bytes of UTF-8 that returns the ids of the reference.

    Special tokens take the spaces around them. Bytes that are not UTF-8 are left out of decoded
    texts.

    Args:
        files: directory with the configuration of the tokenizer.
        roles: default special tokens, role -> token.
        first: roles of the tokens before the bytes, in the order of their ids.
        last: tokens after the bytes.
        template: special tokens around texts.

    Raises:
        SourceError: a file cannot be read.
        VerificationError: a file is malformed.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    settings = TokenizerFilesConfig.read(files)
    names = tokens_by_role(settings, roles)
    tokens = [names[role] for role in first]
    tokens += [_letter(byte) for byte in range(256)]
    tokens += last
    ids = {token: number for number, token in enumerate(tokens)}
    # Without merges, the model splits a text into the letters that stand for its bytes.
    tokenizer = Tokenizer(models.BPE(ids, [], unk_token=names["unk"]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("\ufffd", "")])
    defaults = [parse_special_token(token, token) for token in last]
    for role in first:
        token = parse_special_token(names[role], role)
        spaces = {"lstrip": True, "rstrip": True}
        defaults.append(replace(token, flags={**token.flags, **spaces}))
    settings.add_to(tokenizer, defaults)
    if tokenizer.post_processor is None:
        tokenizer.post_processor = template.build(tokenizer, names, settings.origin)
    finalize(tokenizer, settings)
    return tokenizer


def _letter(byte: int) -> str:
    """Return the letter that stands for a byte (Radford et al. 2019, ``bytes_to_unicode``)."""
    # Printable bytes of Latin-1 stand for themselves; the others follow from U+0100 on.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in printable:
        return chr(byte)
    others = [number for number in range(256) if number not in printable]
    return chr(256 + others.index(byte))

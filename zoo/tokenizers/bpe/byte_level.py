"""Byte-level BPE: from ``tokenizer.json``, or from ``vocab.json`` and ``merges.txt``."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zoo.tokenizers.bpe.base import from_merges, has_merges
from zoo.tokenizers.config_files import TokenizerFilesConfig
from zoo.tokenizers.consistency import check_same_tokenization
from zoo.tokenizers.source_files import MERGES, TOKENIZER_JSON, SourceFiles
from zoo.tokenizers.special_tokens import tokens_by_role, usual_tokens, with_spaced_mask
from zoo.tokenizers.template import CLS_SEP_SEP, Template
from zoo.tokenizers.tokenizer_json import finalize, load

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def fairseq_bpe_tokenizer(files: SourceFiles, *, roles: Mapping[str, str]) -> "Tokenizer":
    """Build the byte-level BPE of models that were trained with fairseq.

    Two separators are between the texts of a pair, offsets of a word exclude the space before it,
    and the mask token includes it.

    Args:
        files: directory with ``tokenizer.json``, or ``vocab.json`` and ``merges.txt``.
        roles: default special tokens, role -> token, restricted to the vocabulary.

    Raises:
        SourceError, VerificationError: see ``byte_level_bpe_tokenizer``.
    """
    return byte_level_bpe_tokenizer(
        files, roles=roles, template=CLS_SEP_SEP, trim_offsets=True, mask_takes_space=True
    )


def byte_level_bpe_tokenizer(
    files: SourceFiles,
    *,
    roles: Mapping[str, str],
    template: Template | None = None,
    trim_offsets: bool = False,
    mask_takes_space: bool = False,
) -> "Tokenizer":
    """Build a tokenizer that returns the ids of the reference implementation.

    A ``tokenizer.json`` with a different type of model is used unchanged.

    Args:
        files: directory with ``tokenizer.json``, or ``vocab.json`` and ``merges.txt``.
        roles: default special tokens, role -> token, restricted to the vocabulary.
        template: special tokens around texts; by default those that ``add_bos_token`` and
            ``add_eos_token`` of ``tokenizer_config.json`` request.
        trim_offsets: default of the option: offsets of a word exclude the space before it.
        mask_takes_space: default of the option: the mask token includes the space before it.

    Raises:
        SourceError: a file cannot be read.
        VerificationError: a file is malformed, two files contradict each other, or the
            vocabulary lacks a special token of the template.
    """
    # A text is split into words with the space before them, and each byte of a word is one of 256
    # symbols (Radford et al. 2019, section 2.2). Precedence of the files:
    #
    # * ``tokenizer.json`` is a complete definition. ``add_prefix_space`` and ``trim_offsets`` in
    #   ``tokenizer_config.json`` override it. If there are ``vocab.json`` and ``merges.txt`` too,
    #   they must result in the same ids.
    # * ``vocab.json`` and ``merges.txt`` have the vocabulary and the merges. Options come from
    #   ``tokenizer_config.json``, else from the family.
    from tokenizers import decoders, pre_tokenizers

    settings = TokenizerFilesConfig.read(files)
    if mask_takes_space:
        settings = with_spaced_mask(settings, roles)
    if files.has(TOKENIZER_JSON):
        tokenizer = load(files)
        if type(tokenizer.model).__name__ == "BPE" and not settings.is_generic:
            _override(tokenizer, settings)
        if has_merges(files):
            check_same_tokenization(files, tokenizer, from_merges(files), MERGES)
    else:
        tokenizer = from_merges(files)
        spaced = settings.option("add_prefix_space", (bool,), False)
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
        tokenizer.decoder = decoders.ByteLevel()
    defaults = usual_tokens(roles, mask_takes_space)
    settings.add_to(tokenizer, defaults)
    if not settings.is_generic:
        if template is None and not files.has(TOKENIZER_JSON):
            template = _requested(settings)
        _add_ends(tokenizer, settings, roles, template, trim_offsets)
    finalize(tokenizer, settings)
    return tokenizer


def _override(tokenizer: "Tokenizer", settings: TokenizerFilesConfig) -> None:
    from tokenizers import pre_tokenizers, processors

    splitter = tokenizer.pre_tokenizer
    ends = tokenizer.post_processor
    for name in ("add_prefix_space", "trim_offsets"):
        if name in settings.config:
            value = settings.option(name, (bool,), False)
            if isinstance(splitter, pre_tokenizers.ByteLevel) and name == "add_prefix_space":
                splitter.add_prefix_space = value
            if isinstance(ends, processors.ByteLevel | processors.RobertaProcessing):
                setattr(ends, name, value)
    tokenizer.pre_tokenizer = splitter
    tokenizer.post_processor = ends


def _requested(settings: TokenizerFilesConfig) -> Template | None:
    """Return the template that ``add_bos_token`` and ``add_eos_token`` request, if any."""
    first, last = (settings.option(f"add_{role}_token", (bool,), False) for role in ("bos", "eos"))
    if not (first or last):
        return None
    single = f"{'bos ' * first}$A{' eos' * last}"
    return Template(single, f"{single} {'bos:1 ' * first}$B:1{' eos:1' * last}")


def _add_ends(
    tokenizer: "Tokenizer",
    settings: TokenizerFilesConfig,
    roles: Mapping[str, str],
    template: Template | None,
    trim_offsets: bool,
) -> None:
    """Set the template, if ``tokenizer.json`` has none."""
    from tokenizers import processors

    if tokenizer.post_processor is not None:
        return
    steps: list[processors.PostProcessor] = []
    if settings.option("trim_offsets", (bool,), trim_offsets):
        spaced = settings.option("add_prefix_space", (bool,), False)
        steps.append(processors.ByteLevel(add_prefix_space=spaced, trim_offsets=True))
    if template is not None:
        names = tokens_by_role(settings, roles)
        steps.append(template.build(tokenizer, names, settings.origin))
    if steps:
        tokenizer.post_processor = processors.Sequence(steps)

"""``zoo.convert``, ``zoo.verify``, ``zoo.retokenize`` and ``zoo.push``."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoo.api.arguments import AnyPath, AnyPaths, as_path, as_reference, checked
from zoo.api.growth import (
    GrowthOptions,
    convert_and_grow,
    convert_and_lengthen,
)
from zoo.errors import UsageError, VerificationError
from zoo.io.paths import as_paths
from zoo.io.remote.cache import fetch

if TYPE_CHECKING:
    from zoo.adapters.source_adapter import AdapterReport
    from zoo.conversion.report import ConversionReport
    from zoo.hub.upload.plan import UploadPlan
    from zoo.io.digests.checks import Check
    from zoo.position_growth.lengthen import Lengthened
    from zoo.position_growth.plan import PositionInit, RopeScaling
    from zoo.retokenization.retokenize import Retokenized

Layout = Literal["zoo", "hub"]
RowMethod = Literal["mean", "random"]


@checked
def convert(
    ref: AnyPath,
    *,
    output: AnyPath | None = None,
    to: Layout = "zoo",
    head: str | None = None,
    dtype: str | None = None,
    init_head: bool = False,
    labels: str | Sequence[str] | None = None,
    model_type: str | None = None,
    tokenizer: AnyPath | None = None,
    allow_pickle: bool = False,
    ignore_crc: bool = False,
    licence: str | None = None,
    base: AnyPath | None = None,
    max_seq_len: int | None = None,
    rope_scaling: "RopeScaling | None" = None,
    position_init: "PositionInit | None" = None,
    eval: AnyPaths = (),
    family: str | None = None,
    global_tokens: str | None = None,
    dry_run: bool = False,
    revision: str | None = None,
    offline: bool = False,
    lock: AnyPath | None = None,
    force: bool = False,
) -> "ConversionReport | AdapterReport | Lengthened":
    """Convert a checkpoint, with every tensor accounted for; ``zoo convert`` does the same.

    Args:
        ref: the checkpoint or adapter: a directory or file, a name of the registry, or a Hub
            repository ``organisation/name``.
        output: directory to write; by default the model's place in the store, if it has a name
            there.
        to: layout of the output: ``zoo`` or ``hub``.
        head: head of the model; by default the one that the tensors belong to.
        dtype: dtype of the stored weights; by default the source's.
        init_head: initialize the head randomly if the source has none.
        labels: labels of the new head, in a sequence or separated by commas.
        model_type: model type, for a ``config.json`` without one.
        tokenizer: model whose tokenizer is used.
        allow_pickle: read PyTorch's ``.bin`` files; nothing in them is executed.
        ignore_crc: read ``.bin`` files that were written without checksums.
        licence: licence in the manifest and the model card; by default the source's.
        base: model that an adapter changes; by default the one that it names.
        max_seq_len: number of tokens that the result reads, more than the source: its learned
            positions are repeated or interpolated, its rotary frequencies scaled.
        rope_scaling: scaling of rotary frequencies, by transformers' ``rope_type``: ``linear``,
            ``dynamic`` or ``yarn``; by default ``yarn``.
        position_init: values of new learned positions: ``repeat`` or ``interpolate``; by default
            ``repeat``.
        eval: files, directories or patterns of texts whose perplexity is measured before and after
            the positions grow, for the report and the manifest.
        family: family with attention to windows that takes over the weights, whose positions are
            repeated; with ``max_seq_len``.
        global_tokens: tokens with global attention, in models that attend to windows: ``task``,
            ``none``, ``first``, ``question``, ``choice``, ``separators``, or positions such as
            ``0,5,17``; by default as in the source.
        dry_run: read only headers, and write nothing.
        revision: branch, tag or commit of a Hub repository.
        offline: open no connection.
        lock: file that pins revisions and digests; by default ``zoo.lock``, if it exists.
        force: replace the output if zoo wrote it.

    Returns:
        what became of each tensor, and ``path``, the directory that was written; ``to_dict`` has
        what ``zoo convert --json`` prints.

    Raises:
        UsageError: an argument does not suit the checkpoint, or the output exists.
        VerificationError: a tensor is not accounted for, or the source is damaged.
        SourceError: the checkpoint is not available.

    Example:
        >>> report = zoo.convert("./hub-directory", output="./model")  # doctest: +SKIP
        >>> report.parameters, report.round_trip  # doctest: +SKIP
        (22713216, 'exact')
    """
    from zoo.adapted_models.checkpoint import hint_of_subfolders
    from zoo.conversion.convert import convert as convert_source
    from zoo.hub.reference import resolve
    from zoo.hub.source import locate_or_download
    from zoo.io.output.overwrite import check_target

    reference_text = as_reference(ref)
    output_path = as_path(output, "output")
    label_names = _split_labels(labels)
    growth = GrowthOptions(
        max_seq_len,
        rope_scaling,
        position_init,
        [fetch(path) for path in as_paths(eval)],
        family,
    )
    growth.require_length()
    if _has_adapter(reference_text):
        _require_adapter_options(
            reference_text,
            {
                "dtype": dtype,
                "init_head": init_head,
                "model_type": model_type,
                "tokenizer": tokenizer,
                "ignore_crc": ignore_crc,
                "licence": licence,
                "global_tokens": global_tokens,
                "max_seq_len": max_seq_len,
                "dry_run": dry_run,
                "revision": revision,
                "lock": lock,
            },
        )
        return _convert_adapter(
            Path(reference_text).expanduser(),
            None if base is None else as_reference(base),
            output_path,
            to,
            head=head,
            labels=label_names,
            allow_pickle=allow_pickle,
            offline=offline,
            force=force,
        )
    if base is not None:
        if resolve(reference_text, revision=revision).path is None:
            raise UsageError(
                f"{reference_text} is not a directory, and --base is for the directory of an "
                "adapter",
                "download the adapter, and give its directory; or leave --base out",
            )
        raise UsageError(
            f"{reference_text} is not an adapter",
            hint_of_subfolders(Path(reference_text).expanduser()) or "leave --base out",
        )
    # An output in the store, which is the default, cannot overwrite the source.
    reference = resolve(reference_text, revision=revision, stored=output_path is not None)
    is_stored = reference.kind in ("registry", "hub") and to == "zoo"
    if output_path is None and not dry_run and not is_stored:
        raise UsageError(
            "this conversion has no name in the store", "give an output directory: -o DIR"
        )
    if output_path is None and not dry_run and max_seq_len is not None:
        raise UsageError(
            "a model with more positions has no name in the store", "give an output: -o DIR"
        )
    target = output_path or reference.stored
    if not dry_run:
        sources = [] if reference.path is None else [reference.path]
        check_target(target, force=force, sources=sources)
    lock_path = as_path(lock, "file")
    source = locate_or_download(
        reference,
        offline=offline,
        lock=lock_path,
        allow_pickle=allow_pickle,
        model_type=model_type,
    )
    tokenizer_source = None
    if tokenizer is not None:
        tokenizer_source = locate_or_download(
            resolve(as_reference(tokenizer)), offline=offline, lock=lock_path, tokenizer_alone=True
        )
    convert_to = partial(
        convert_source,
        source,
        head=head,
        dtype=dtype,
        init_head=init_head,
        labels=label_names,
        allow_pickle=allow_pickle,
        ignore_crc=ignore_crc,
        tokenizer=tokenizer_source,
        licence=licence,
        global_tokens=global_tokens,
    )
    if family is not None:
        return convert_and_lengthen(
            source, convert_to, target, growth, to=to, force=force, dry_run=dry_run
        )
    if max_seq_len is not None:
        return convert_and_grow(
            source, convert_to, target, growth, to=to, force=force, dry_run=dry_run
        )
    return convert_to(target, to=to, force=force, dry_run=dry_run)


def _split_labels(labels: str | Sequence[str] | None) -> list[str] | None:
    if not labels:
        return None
    if isinstance(labels, str):
        return [label.strip() for label in labels.split(",")]
    return list(labels)


def _has_adapter(ref: str) -> bool:
    """Return whether a reference is a directory with an adapter, of zoo or of another library."""
    from zoo.adapters.layouts import is_foreign_adapter
    from zoo.checkpoint import is_checkpoint, load_checkpoint

    path = Path(ref).expanduser()
    if is_checkpoint(path):
        return load_checkpoint(path).is_adapter
    return path.is_dir() and is_foreign_adapter(path)


def _require_adapter_options(ref: str, model_options: dict[str, Any]) -> None:
    """Check that no option is given that only suits whole models."""
    for name, value in model_options.items():
        if value:
            raise UsageError(
                f"--{name.replace('_', '-')} is for whole models, and {ref} is an adapter",
                "leave it out",
            )


def _convert_adapter(
    path: Path,
    base: str | None,
    output: Path | None,
    to: Layout,
    *,
    head: str | None,
    labels: list[str] | None,
    allow_pickle: bool,
    offline: bool,
    force: bool,
) -> "AdapterReport":
    """Convert an adapter of another library, or write one in its layout."""
    from zoo.adapters.layouts import read_adapter_of, write_adapter_for
    from zoo.io.output.overwrite import check_target

    if output is None:
        raise UsageError("an adapter has no name in the store", "give an output directory: -o DIR")
    check_target(output, force=force, sources=[path])
    if to == "hub":
        return write_adapter_for(path, base, output, force=force, offline=offline)
    return read_adapter_of(
        path,
        base,
        output,
        labels=labels,
        force=force,
        head=head,
        offline=offline,
        allow_pickle=allow_pickle,
    )


@dataclass(frozen=True)
class Verification:
    """Result of ``zoo.verify``: the directory, and the checks, none of which failed."""

    path: Path
    checks: "tuple[Check, ...]"

    def _repr_html_(self) -> str:
        """Return the checks as a table, for notebooks."""
        from zoo.report.cells import table_cell

        rows = [(check.name, check.outcome, check.detail) for check in self.checks]
        return table_cell(str(self.path), ("check", "outcome", ""), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``zoo verify --json`` prints."""
        return {
            "path": str(self.path),
            "ok": True,
            "checks": [asdict(check) for check in self.checks],
        }


def verify(
    ref: AnyPath,
    *,
    parity: bool = True,
    on_check: "Callable[[Check], None] | None" = None,
) -> Verification:
    """Verify every byte of a model, an export, a corpus, cleaned texts or a run, as ``zoo verify``.

    Args:
        ref: directory of a model, an export, a corpus, cleaned texts or a run, a checkpoint of a
            run, or the name of a model in the store.
        parity: compare the outputs of a model with transformers, if it is installed.
        on_check: called with the result of each check: ``name``, ``outcome`` (``ok``, ``failed``
            or ``not run``) and ``detail``.

    Returns:
        ``path`` and ``checks``.

    Raises:
        VerificationError: a check failed. All checks are made before.
        UsageError: the reference is none of these.

    Example:
        >>> for check in zoo.verify("./model").checks:  # doctest: +SKIP
        ...     print(check.name, check.outcome)
    """
    from zoo.conformance.verify import verify as check_directory
    from zoo.hub.reference import resolve

    reference_text = as_reference(ref)
    path = Path(reference_text).expanduser()
    if not path.is_dir():
        reference = resolve(reference_text)
        path = reference.path or reference.stored
    checks = []
    for check in check_directory(path, reference=parity):
        checks.append(check)
        if on_check is not None:
            on_check(check)
    failures = [check for check in checks if check.outcome == "failed"]
    if failures:
        names = ", ".join(check.name for check in failures)
        raise VerificationError(f"{path}: failed: {names}: {failures[0].detail}")
    return Verification(path, tuple(checks))


@checked
def retokenize(
    ref: AnyPath,
    *,
    tokenizer: AnyPath,
    output: AnyPath,
    train: AnyPaths = (),
    vocab_size: int | None = None,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    method: RowMethod = "mean",
    keep: bool = True,
    seed: int = 0,
    revision: str | None = None,
    offline: bool = False,
    lock: AnyPath | None = None,
    force: bool = False,
) -> "Retokenized":
    """Give a model the vocabulary of another tokenizer; ``zoo retokenize`` does the same.

    Tokens that both vocabularies have keep their rows of embeddings.

    Args:
        ref: the model.
        tokenizer: model whose tokenizer is used, a file of one, or ``train`` to train one.
        output: directory of the new model.
        train: texts to train the tokenizer on.
        vocab_size: size of a tokenizer to train; by default the model's.
        lowercase: whether a trained tokenizer lower-cases texts; by default it keeps their case.
        strip_accents: whether it removes accents; by default if it lower-cases.
        method: rows of new tokens: the ``mean`` of their parts' rows, or ``random``.
        keep: keep the rows of tokens that both vocabularies have; otherwise all are random.
        seed: seed of random rows.
        revision: branch, tag or commit of a Hub repository.
        offline: open no connection.
        lock: file that pins revisions and digests; by default ``zoo.lock``, if it exists.
        force: replace the output if zoo wrote it.

    Returns:
        ``path``; ``plan``, where the rows come from; ``tensors``, those with a row for each token;
        and ``before``, the size of the old vocabulary.

    Raises:
        UsageError: the model has no tokenizer, or an argument does not suit it.
        SourceError: a model or a text is missing.
        VerificationError: a file is damaged, or the new model computes something else.

    Example:
        >>> result = zoo.retokenize(  # doctest: +SKIP
        ...     "all-minilm-l6-v2", tokenizer="train", train="german/", output="german"
        ... )
        >>> result.plan.counts  # doctest: +SKIP
        {'kept': 9182, 'composed': 21013, 'new': 327}
    """
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.io.output.overwrite import check_target
    from zoo.retokenization.retokenize import retokenize as write_retokenized
    from zoo.retokenization.tokenizer import new_tokenizer

    output_path = as_path(output, "output")
    assert output_path is not None, "it is a required argument"
    check_target(output_path, force=force, sources=[])  # before anything is computed
    checkpoint = resolve_checkpoint(
        as_reference(ref), revision=revision, offline=offline, lock=as_path(lock, "file")
    )
    new = new_tokenizer(
        checkpoint,
        as_reference(tokenizer),
        tuple(as_paths(train)),
        vocab_size=vocab_size,
        lowercase=lowercase,
        strip_accents=strip_accents,
        offline=offline,
    )
    return write_retokenized(
        checkpoint,
        new.tokenizer,
        output_path,
        method=method,
        keep=keep,
        seed=seed,
        force=force,
        sources=new.sources,
    )


@dataclass(frozen=True)
class Upload:
    """Result of ``zoo.push``: the files, and the commit if they were uploaded."""

    path: Path
    repo: str
    is_private: bool  # whether a new repository is private
    plan: "UploadPlan"
    commit: str | None  # address of the commit; ``None`` if nothing was sent

    def _repr_html_(self) -> str:
        """Return the files as a table, for notebooks."""
        from zoo.report.cells import table_cell

        rows = [(name, file.bytes) for name, file in self.plan.files.items()]
        title = f"{self.repo}: {self.commit or 'nothing was sent'}"
        return table_cell(title, ("file", "bytes"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``zoo push --json`` prints."""
        files = []
        for name, file in self.plan.files.items():
            files.append({"name": name, "bytes": file.bytes, "sha256": file.sha256})
        return {
            "path": str(self.path),
            "repo": self.repo,
            "private": self.is_private,
            "licence": self.plan.licence,
            "files": files,
            "left_out": list(self.plan.left_out),
            "uploaded": self.commit is not None,
            "commit": self.commit,
        }


def push(
    path: AnyPath,
    repo: str,
    *,
    yes: bool = False,
    public: bool = False,
    message: str = "Upload model",
    licence: str | None = None,
) -> Upload:
    """Upload an export, or a directory in the Hub's layout; ``zoo push`` does the same.

    The access token comes from ``$HF_TOKEN`` or ``hf auth login``.

    Args:
        path: directory that ``zoo.convert(..., to="hub")`` or ``zoo.export`` wrote.
        repo: repository of the Hub, ``organisation/name``.
        yes: upload; without it, nothing is sent.
        public: make a new repository public.
        message: message of the commit.
        licence: licence to state on the model card; by default the card's.

    Returns:
        ``plan``, with the files, and ``commit``, which is ``None`` if nothing was sent.

    Raises:
        UsageError: the directory cannot be pushed.
        SourceError: the Hub is not available, or refuses the token.

    Example:
        >>> upload = zoo.push("./hub-directory", "organisation/name")  # doctest: +SKIP
        >>> list(upload.plan.files)  # doctest: +SKIP
        ['README.md', 'config.json', 'model.safetensors', 'tokenizer.json']
    """
    from zoo.hub.upload.plan import plan_upload

    directory = as_path(path, "file")
    assert directory is not None, "it is a required argument"
    _require_hub_class(directory)
    plan = plan_upload(directory, repo, licence)
    commit = None
    if yes:
        from zoo.hub.upload.upload import upload

        commit = upload(plan, repo, private=not public, message=message)
    return Upload(directory, repo, not public, plan, commit)


def _require_hub_class(path: Path) -> None:
    """Refuse a model in zoo's layout that no class of the Hub has; an export of it can be sent."""
    from zoo.checkpoint import CONFIG, is_checkpoint, load_checkpoint

    if not is_checkpoint(path):
        return
    checkpoint = load_checkpoint(path)
    if checkpoint.is_export:
        return
    if checkpoint.family.config_files[0] != CONFIG:  # written in the layout of the release
        return
    try:
        checkpoint.family.architecture(checkpoint.config, checkpoint.head_name)
    except UsageError as error:
        command = shlex.join(["zoo", "export", str(path)])
        raise UsageError(
            f"{path} cannot be converted to the Hub's layout: {error.what}",
            f"`{command}` writes a directory that can be pushed",
        ) from error

"""Base class of export targets, which plugins subclass."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from zoo.errors import UsageError, did_you_mean
from zoo.exporting.report import ExportReport
from zoo.io.lazy_import import import_problem
from zoo.io.tensors.formats import DTYPE_NAMES
from zoo.version import package_version

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.conversion.usage import Snippet
    from zoo.exporting.card import CardFacts
    from zoo.exporting.quantization.plan import QuantizationPlan
    from zoo.exporting.quantization.search import MixedPrecisionModel
    from zoo.families.base import Family
    from zoo.inference.session import Arrays, Session
    from zoo.sentence_models.pooling import Pooling


TOKEN_TYPES = "token_type_ids"
Report = TypeVar("Report", bound=ExportReport)


@dataclass(frozen=True)
class Precision:
    """How exactly a target computes in a precision.

    Attributes:
        tolerance: largest accepted difference from torch in float32, relative to the largest
            magnitude of the output; ``None`` for a quantized model, which passes by its agreement
            on text (``zoo export --max-drop``).
        reason: why results differ by as much, shown in the documentation.
        max_drop: accepted loss of a quantized model, if ``--max-drop`` does not say it.
    """

    tolerance: float | None
    reason: str
    max_drop: float = 0.01


class TargetOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the options that a target adds to ``zoo export``; it has none itself.

    A subclass declares a field for each option, with a type, a default and a description::

        class ZipOptions(TargetOptions, frozen=True, kw_only=True):
            level: Annotated[int, Meta(ge=0, le=9, description="Compression level.")] = 6

    ``zoo export`` then has ``--level``, with its help, its default and its bounds. A field is a
    text, a number, a ``Literal``, a ``Path`` of a file to read, or a bool; each may be ``None``,
    where the option is not given. A bool that may be ``None`` is a pair such as
    ``--cache/--no-cache``.
    """

    @property
    def keeps_adapters(self) -> bool:
        """Whether adapters stay apart from the weights, instead of being merged into them."""
        return False


@dataclass(frozen=True)
class ExportSettings:
    """Settings of an export that all targets have, from the options of ``zoo export``."""

    precision: str | None = None  # of the target; ``None`` for its first one
    # further precisions in the same directory, see ``ExportTarget.combines_precisions``
    more_precisions: tuple[str, ...] = ()
    force: bool = False  # replace an existing export
    managed: bool = False  # replace any existing target, in a cache
    unverified: bool = False  # publish without a comparison where the runtime is missing
    # publish a model whose own tokenizer cuts texts differently
    allow_tokenizer_differences: bool = False
    # texts, metric and accepted loss of a quantized model; ``None`` for the default ones
    quantization: "QuantizationPlan | None" = None
    # models with one adapter each, whose tensors are inputs; see ``TargetOptions.keeps_adapters``
    adapters: "Sequence[Checkpoint]" = ()

    @property
    def precisions(self) -> list[str]:
        """All precisions that are asked for."""
        names = (self.precision, *self.more_precisions)
        return [name for name in names if name is not None]


class WrittenModel(Generic[Report]):
    """A model that a target wrote: what the gate runs, and what the record and the card say of it.

    Most targets need none: ``ExportTarget.write`` returns ``None``, and the files are the exported
    model in one precision. A target whose export is more than this returns an instance of a
    subclass, which overrides what differs: graphs that run in several ways or have quantized
    copies, or another model that was made from the exported one.

    Args:
        checkpoint: the model of the files. Another one than the exported model for a target whose
            ``runs_weights`` is false.
        details: fields of ``report_type`` that describe the files.

    Attributes:
        report_type: type of the record of the export.
        compares_texts: whether the gate compares outputs of texts in addition to random tokens.
    """

    report_type: ClassVar[type[ExportReport]] = ExportReport
    compares_texts: ClassVar[bool] = True

    def __init__(self, checkpoint: "Checkpoint", details: Mapping[str, Any] | None = None) -> None:
        self.checkpoint = checkpoint
        self.details = details or {}

    def runs(
        self, session: "Session", inputs: "Arrays", lengths: Sequence[int], number: int
    ) -> "Iterator[tuple[int, Arrays]]":
        """Yield the outputs of a batch for each way in which the runtime computes it.

        By default there is one: a run of the session.

        Args:
            session: what ``ExportTarget.open`` returned.
            inputs: inputs of the batch, by name.
            lengths: number of tokens of each row.
            number: number of the batch, from 0.

        Yields:
            number of tokens that were in a key-value cache, and outputs by name.
        """
        yield 0, session.run(inputs, session.outputs)

    def add_variants(self, directory: Path, report: Report, settings: ExportSettings) -> None:
        """Add what a directory holds besides the model that the gate compared.

        It compares what it adds, and records it in the report. By default there is nothing.

        Args:
            directory: directory of the export.
            report: record of the export.
            settings: what to write, and what is accepted.
        """
        return None

    def config_keys(self, report: Report) -> Mapping[str, Any]:
        """Return further keys of ``config.json``; none by default."""
        return {}

    def card_facts(self, report: Report) -> "CardFacts | None":
        """Return what the model card says of the files; ``None`` for what the record says."""
        return None

    def close(self) -> None:
        """Remove temporary files that ``checkpoint`` reads; by default there are none."""
        return None


class ExportTarget(ABC):
    """A runtime and its file format: what it holds, how it is written, how it runs.

    A target has a ``name``, a ``title`` and ``precisions``, and implements ``refusal``, ``write``
    and ``open``; everything else has a default. The gate writes a model, opens it with the target's
    own runtime and compares the outputs with torch, before anything is published; see
    ``zoo.exporting.gate.export_model``.

    Args:
        options: options of the type ``options_type``; ``None`` for their defaults.

    Attributes:
        options: options of this export.
        name: name of the target, of its entry point and of the backend in ``zoo run --backend``.
        title: name of the runtime, for messages and the documentation.
        package: module that writes the files, and in most cases runs them; empty for none.
        install: command that installs it.
        extra: extra of ``plm-zoo`` that installs it; empty for none.
        precisions: name -> precision; the first is the default.
        precision_synonyms: further names of precisions, such as ``int8`` for ``q8_0``.
        options_type: type of the options that the target adds to ``zoo export``.
        combines_precisions: whether one directory holds a model in several precisions.
        reads_token_types: whether the runtime takes token types other than zero.
        library: library of the runtime's models on the Hub, for the model card.
        runs_weights: whether the files hold the model that is exported. False for a target that
            makes another model of it, such as static embeddings: it is not a backend of the model,
            and the gate compares how both rank texts, not their outputs.
        generates: whether the sessions of language models generate text.
        pools: whether the sessions of encoders return ``sentence_embedding`` only.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    library: ClassVar[str] = ""
    package: ClassVar[str] = ""
    install: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    precisions: ClassVar[Mapping[str, Precision]]
    precision_synonyms: ClassVar[Mapping[str, str]] = {}
    options_type: ClassVar[type[TargetOptions]] = TargetOptions
    combines_precisions: ClassVar[bool] = False
    reads_token_types: ClassVar[bool] = True
    runs_weights: ClassVar[bool] = True
    generates: ClassVar[bool] = False
    pools: ClassVar[bool] = False
    options: TargetOptions

    def __init__(self, options: TargetOptions | None = None) -> None:
        self.options = self.options_type() if options is None else options

    @property
    def folder(self) -> str:
        """Folder of the exported directory that holds the runtime's files."""
        return self.name

    def check_precision(self, name: str | None) -> str:
        """Return the name of a precision in any spelling; by default the first.

        Args:
            name: such as ``float16``, ``fp16`` or ``Q8_0``.

        Returns:
            one of ``precisions``.

        Raises:
            UsageError: the target has no such precision.
        """
        from zoo.conversion.dtypes import NAMES

        names = list(self.precisions)
        if name is None:
            return names[0]
        folded = name.lower()
        folded = DTYPE_NAMES.get(NAMES.get(folded, folded.upper()), folded)  # f16 is float16
        folded = self.precision_synonyms.get(folded, folded)
        if folded not in names:
            raise UsageError(
                f"{self.title} has no precision {name!r}",
                did_you_mean(name, names) or f"give {', '.join(names)}",
            )
        return folded

    def resolve_precisions(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the precisions that an export has for those that are asked for.

        Args:
            names: precisions in any spelling; none for the default one.

        Returns:
            names of ``precisions``, each once; a single one unless ``combines_precisions``.

        Raises:
            UsageError: the target has no such precision, or does not hold several.
        """
        resolved = tuple(dict.fromkeys(self.check_precision(name) for name in names))
        if len(resolved) > 1 and not self.combines_precisions:
            raise UsageError(
                f"an export to {self.title} has one precision, not {' and '.join(resolved)}",
                "give one of them",
            )
        return resolved or (self.check_precision(None),)

    def writer_problem(self) -> str | None:
        """Return why nothing can be written here; ``None`` if ``package`` is installed."""
        return import_problem(self.package) if self.package else None

    def runtime_problem(self) -> str | None:
        """Return why the runtime cannot run here; ``None`` if it can.

        By default the runtime is ``package``, which also writes its files.
        """
        return self.writer_problem()

    def model_problem(self, family: "Family", config: Any, head: str) -> str | None:
        """Return why the runtime, as zoo reaches it, cannot run a model that the format holds.

        Such a model is written with ``--unverified`` only. By default ``None``: it can.

        Args:
            family: family of the model.
            config: its configuration.
            head: name of its head.
        """
        return None

    def check_model(self, checkpoint: "Checkpoint", settings: ExportSettings) -> None:
        """Check what the files need beyond family and head, such as a tokenizer.

        It runs before the weights are read. By default, nothing else is needed.

        Args:
            checkpoint: the model to export.
            settings: what to write, and what is accepted.

        Raises:
            UsageError: the model lacks it, or cannot be exported with the options and settings.
        """
        return None

    def require_held(
        self, checkpoint: "Checkpoint", settings: ExportSettings | None = None
    ) -> None:
        """Check that the target can hold a model.

        Args:
            checkpoint: the model to export.
            settings: what to write; by default what ``zoo export`` writes without options.

        Raises:
            UsageError: it cannot, and why.
        """
        from zoo.inference.task_checks import without_head

        family = checkpoint.family
        model = checkpoint.model
        reason = self.refusal(family, checkpoint.config, checkpoint.head_name, model.pooling)
        tokenizer = model.tokenizer
        has_types = tokenizer is not None and tokenizer.token_types
        has_types = has_types and TOKEN_TYPES in checkpoint.onnx_spec.inputs
        if model.score_activation is not None and has_types and not self.reads_token_types:
            reason = "it reads no token types, which tell a query from a text"
        if reason is not None:
            hint = "docs/runtime-table.md lists what each target holds"
            if self.refusal(family, checkpoint.config, "none", model.pooling) is None:
                hint = without_head(checkpoint.name)
            raise UsageError(
                f"{self.title} cannot hold {checkpoint.name}, of the family "
                f"{family.name} with the head {checkpoint.head_name}: {reason}",
                hint,
            )
        self.check_model(checkpoint, settings or ExportSettings())

    def runtime_install(self) -> str:
        """Return how to install the runtime."""
        return self.install

    def versions(self) -> dict[str, str]:
        """Return the versions of installed packages that write the files and run them.

        By default the version of ``package``.

        Returns:
            package -> version; packages that are not installed are left out.
        """
        version = package_version(self.package) if self.package else None
        return {} if version is None else {self.package: version}

    @abstractmethod
    def refusal(
        self, family: "Family", config: Any, head: str, pooling: "Pooling | None" = None
    ) -> str | None:
        """Return why the target cannot hold a model; ``None`` if it can.

        Args:
            family: family of the model.
            config: its configuration.
            head: name of its head.
            pooling: pooling of a sentence encoder.
        """

    @abstractmethod
    def write(
        self, checkpoint: "Checkpoint", directory: Path, precision: str
    ) -> WrittenModel[Any] | None:
        """Write the runtime's files into ``folder`` of a directory.

        Args:
            checkpoint: a checkpoint with weights.
            directory: directory of the export.
            precision: name of one of ``precisions``.

        Returns:
            what was written, where it is more than the model in one precision; else ``None``.
        """

    @abstractmethod
    def open(
        self, checkpoint: "Checkpoint", directory: Path, precision: str, threads: int | None = None
    ) -> "Session":
        """Open written files with the runtime.

        Args:
            checkpoint: the exported model, or its export; only its records are read.
            directory: directory of the export.
            precision: name of the precision that was written.
            threads: number of CPU threads; ``None`` for the runtime's choice.

        Returns:
            a session whose inputs and outputs are those of ``Family.onnx``, or some of them; the
            output ``sentence_embedding`` is the pooled and normalized vector of a text.

        Raises:
            VerificationError: the files are damaged.
        """

    def mixed_precision(
        self, checkpoint: "Checkpoint", precision: str
    ) -> "MixedPrecisionModel[str] | None":
        """Return what writes some layers in higher precision, for a quantized model.

        ``None``, the default, is for a format with one precision for all layers.
        """
        return None

    def tokens(
        self, checkpoint: "Checkpoint", directory: Path, texts: list[str]
    ) -> list[list[int]] | None:
        """Return the token ids of texts, as the runtime cuts them.

        The gate compares them with those of the model's tokenizer. ``None``, the default, is for a
        runtime that takes token ids.

        Args:
            checkpoint: the exported model.
            directory: directory of the export.
            texts: texts to cut.

        Returns:
            ids of each text, with special tokens.
        """
        return None

    def snippets(self, checkpoint: "Checkpoint") -> "Iterable[Snippet]":
        """Return what the model card shows of programs that open the files; nothing by default.

        A snippet has the name of a program, the language and the lines. ``PLACEHOLDER`` of
        ``zoo.hub.upload.plan`` stands for the repository, whose name ``zoo push`` fills in.
        ``zoo.exporting.snippets`` has parts that several runtimes share.

        Args:
            checkpoint: the model of the files.

        Returns:
            snippets; those without lines are left out.
        """
        return ()


def find_comparison_problem(
    target: ExportTarget, checkpoint: "Checkpoint", *, unverified: bool
) -> str | None:
    """Return why a runtime cannot run a model here; ``None`` if it can.

    Raises:
        UsageError: the package that writes the files is not installed, or the runtime cannot run
            the model and ``unverified`` does not accept it.
    """
    missing_package = target.writer_problem()
    if missing_package is not None:
        raise UsageError(f"{target.title} is not available: {missing_package}", target.install)
    problem = target.model_problem(checkpoint.family, checkpoint.config, checkpoint.head_name)
    if problem is not None and not unverified:
        raise UsageError(
            f"{target.title} cannot be compared with torch: {problem}",
            "add --unverified to write the model all the same",
        )
    if problem is None:
        problem = target.runtime_problem()
    if problem is not None and not unverified:
        raise UsageError(
            f"{target.title} is not available, so nothing can be compared with torch: {problem}",
            f"{target.runtime_install()}, or add --unverified",
        )
    return problem


def unused_option(option: str, ways: str) -> UsageError:
    """Return the error for an option of quantized models without an option that makes one."""
    return UsageError(f"{option} is for quantized models", f"give {ways}, or leave it out")

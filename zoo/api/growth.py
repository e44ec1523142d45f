"""``zoo.convert(max_seq_len=...)``: a conversion whose result reads longer texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoo.errors import UsageError

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.conversion.report import ConversionReport
    from zoo.hub.source import CheckpointDir
    from zoo.position_growth.grow import Measure
    from zoo.position_growth.lengthen import Lengthened
    from zoo.position_growth.plan import PositionInit, RopeScaling

# Converts a source to the zoo's layout, in a directory.
ConvertSource = Callable[[Path], "ConversionReport"]


@dataclass(frozen=True)
class GrowthOptions:
    """Options of a conversion whose result has more positions.

    Attributes:
        max_seq_len: number of tokens that the result reads; ``None`` for those of the source.
        rope_scaling: scaling of rotary frequencies.
        position_init: values of new rows of tables of learned positions.
        eval: files with texts whose perplexity is measured before and after.
        family: family with attention to windows that takes over the weights; ``None`` for the
            model's own.
    """

    max_seq_len: int | None = None
    rope_scaling: "RopeScaling | None" = None
    position_init: "PositionInit | None" = None
    eval: Sequence[Path] = ()
    family: str | None = None

    def require_length(self) -> None:
        """Check that there are no other options without a length."""
        other_options = {
            "--rope-scaling": self.rope_scaling,
            "--position-init": self.position_init,
            "--eval": self.eval,
            "--family": self.family,
        }
        for flag, value in other_options.items():
            if value and self.max_seq_len is None:
                raise UsageError(f"{flag} is for --max-seq-len N", "give both, or leave it out")
            if value and self.family is not None and flag != "--family":
                raise UsageError(
                    f"{flag} is for models that stay in their family, and --family repeats "
                    "positions",
                    "leave one of them out",
                )


def convert_and_grow(
    source: "CheckpointDir",
    convert_source: ConvertSource,
    target: Path | None,
    options: GrowthOptions,
    *,
    to: Literal["zoo", "hub"],
    force: bool,
    dry_run: bool,
) -> "ConversionReport":
    """Convert a checkpoint, and write it with more positions.

    Args:
        source: the checkpoint.
        convert_source: converts it.
        target: the directory to write; ``None`` is allowed only with ``dry_run``.
        options: the number of positions, and how they grow.
        to: the layout to write.
        force: whether to overwrite an earlier output.
        dry_run: whether to write nothing.
    """
    from zoo.checkpoint import load_checkpoint
    from zoo.conversion.convert import convert
    from zoo.conversion.hub_files import require_hub_layout
    from zoo.hub.reference import resolve
    from zoo.hub.source import locate_or_download
    from zoo.io.scratch import scratch_directory
    from zoo.position_growth.grow import grow
    from zoo.position_growth.plan import plan_growth

    assert options.max_seq_len is not None, "require_length checks it"
    sources = [source.directory]
    with scratch_directory(is_only_folder=False) as folder:
        report = convert_source(folder / "model")
        checkpoint = load_checkpoint(folder / "model")
        plan = plan_growth(
            checkpoint,
            options.max_seq_len,
            name=source.reference,
            rope_scaling=options.rope_scaling,
            position_init=options.position_init,
        )
        if to == "hub":
            record = checkpoint.manifest.source
            extra_config = record.extra_config if record else None
            require_hub_layout(checkpoint.family, plan.config, extra_config)
        measure = _perplexity_of(options.eval, checkpoint, source.reference)
        if dry_run:
            return replace(report, path=None)
        if target is None:
            raise UsageError("an output directory is needed", "give -o")
        if to == "zoo":
            growth = grow(checkpoint, target, plan, measure=measure, force=force, sources=sources)
        else:
            growth = grow(checkpoint, folder / "grown", plan, measure=measure)
            grown = locate_or_download(resolve(str(folder / "grown")))
            convert(grown, target, to="hub", force=force)
        parameters = report.parameters + growth.new_parameters
        return replace(report, path=target, growth=growth, parameters=parameters)


def convert_and_lengthen(
    source: "CheckpointDir",
    convert_source: ConvertSource,
    target: Path | None,
    options: GrowthOptions,
    *,
    to: Literal["zoo", "hub"],
    force: bool,
    dry_run: bool,
) -> "Lengthened":
    """Convert a checkpoint, and write it as a model of another family that reads longer texts.

    For the arguments, see ``convert_and_grow``; ``options`` has a family.
    """
    from zoo.checkpoint import load_checkpoint
    from zoo.io.scratch import scratch_directory
    from zoo.plugins import get_family
    from zoo.position_growth.lengthen import lengthen

    assert options.max_seq_len is not None, "require_length checks it"
    assert options.family is not None, "the caller checks it"
    if to != "zoo":
        raise UsageError("--family writes zoo's layout", "convert the result with --to hub")
    with scratch_directory(is_only_folder=False) as folder:
        convert_source(folder / "model")
        return lengthen(
            load_checkpoint(folder / "model"),
            None if dry_run else target,
            family=get_family(options.family),
            max_seq_len=options.max_seq_len,
            reference=source.reference,
            force=force,
            sources=(source.directory,),
        )


def _perplexity_of(files: Sequence[Path], checkpoint: "Checkpoint", name: str) -> "Measure | None":
    """Return a function that measures the perplexity of texts, if there are any.

    Raises:
        UsageError: the model predicts no tokens.
    """
    from zoo.api.evaluation import evaluate
    from zoo.inference.scoring import CausalScorer, MaskedScorer, scorer_type

    if not files:
        return None
    tasks: dict[Any, str] = {CausalScorer: "perplexity", MaskedScorer: "pseudo-perplexity"}
    task = tasks.get(scorer_type(checkpoint.head_name, checkpoint.head))
    if task is None:
        raise UsageError(
            f"{name} has the head {checkpoint.head_name}, which predicts no tokens, and --eval "
            "measures their perplexity",
            "leave --eval out, or convert the model with such a head: --head",
        )

    def measure(model: "Checkpoint") -> dict[str, float]:
        try:
            result = evaluate(model.path, eval=list(files), task=task, backend="cpu", record=False)
        except UsageError as error:
            # The directory is a temporary one.
            raise UsageError(error.what.replace(str(model.path), name), error.hint) from error
        return dict(result.metrics)

    return measure

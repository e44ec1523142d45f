"""``zoo.layer_similarity``."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.api.arguments import AnyPath, as_reference, checked
from zoo.errors import UsageError

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.probing.similarity import LayerSimilarity, Unit


@checked
def layer_similarity(
    ref: AnyPath,
    other: AnyPath | None = None,
    *,
    texts: Iterable[str],
    unit: "Unit | None" = None,
    max_seq_len: int | None = None,
    device: str | None = None,
    offline: bool = False,
) -> "LayerSimilarity":
    """Return how similar the layers of two models are, as ``zoo look --input`` does.

    The measures are linear CKA (Kornblith et al. 2019, arXiv:1905.00414), SVCCA with 99 % of the
    variance (Raghu et al. 2017, arXiv:1706.05806) and PWCCA (Morcos et al. 2018, arXiv:1806.05759),
    weighted by the first model.

    Args:
        ref: a model, or ``RUN/checkpoints/step-N``, a checkpoint of a run that has ended.
        other: another one; by default the same, whose layers are compared with each other.
        texts: the texts that both read.
        unit: what has a vector: ``tokens``, ``words``, which are the mean of their tokens, or
            ``sentences``, the mean of all tokens of a text. By default tokens, or words where the
            models cut the texts into different tokens.
        max_seq_len: length in tokens at which texts are cut; by default the models' limit.
        device: device, such as ``cuda:1``.
        offline: open no connection.

    Returns:
        ``matrices``: ``cka``, ``svcca`` and ``pwcca`` -> (layers of ``ref``, layers of ``other``),
        float64; and ``layers``, ``unit``, ``vectors``, ``warnings``.

    Raises:
        UsageError: there are no texts, or the models have different tokens.
        SourceError: a model is not available.
        VerificationError: its files are damaged.

    Example:
        >>> similarity = zoo.layer_similarity("runs/one", "runs/two", texts=lines)  # doctest: +SKIP
        >>> similarity.matrices["cka"].shape  # doctest: +SKIP
        (13, 13)
    """
    from zoo.io.scratch import scratch_directory
    from zoo.probing.similarity import UNITS, compare_layers

    if unit is not None and unit not in UNITS:
        raise UsageError(f"{unit!r} is not a unit", f"give {', '.join(UNITS)}")
    text_list = [text for text in texts if text.strip()]
    if not text_list:
        raise UsageError("there are no texts to compare layers on", "give texts that are not empty")
    first = as_reference(ref)
    second = first if other is None else as_reference(other)
    with ExitStack() as stack:
        checkpoints: dict[str, Checkpoint] = {}
        for reference in dict.fromkeys((first, second)):
            folder = stack.enter_context(scratch_directory(is_only_folder=False))
            checkpoints[reference] = _open(reference, folder, offline=offline)
        return compare_layers(
            (first, second),
            (checkpoints[first], checkpoints[second]),
            text_list,
            unit=unit,
            max_tokens=max_seq_len,
            device=device,
        )


def _open(reference: str, folder: Path, *, offline: bool) -> "Checkpoint":
    """Open a model, or a checkpoint of a run, which is written as a model into a folder."""
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.probing.run_checkpoints import is_run_checkpoint, write_as_model

    path = Path(reference).expanduser()
    if is_run_checkpoint(path):
        return write_as_model(path, folder)
    return resolve_checkpoint(reference, offline=offline)

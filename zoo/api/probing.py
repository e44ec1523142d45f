"""``zoo.probe``: the command ``zoo probe`` as a function."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.api.arguments import AnyPath, AnyPaths, as_path, as_reference, checked
from zoo.errors import UsageError
from zoo.io.paths import as_paths
from zoo.probing.settings import Measurements, Pooling, ProbeKind, ProbeRecipe

if TYPE_CHECKING:
    from zoo.probing.report import Probing

RECIPE = ProbeRecipe()


@checked
def probe(
    ref: AnyPath,
    *,
    task: str,
    train: AnyPaths,
    eval: AnyPaths,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    skip_invalid: bool = False,
    compare: AnyPath | Sequence[AnyPath] = (),
    layers: Sequence[int] | None = None,
    pooling: Pooling | None = None,
    probe: ProbeKind = RECIPE.probe,
    hidden_size: int | None = None,
    l2: float = RECIPE.l2,
    epochs: int = RECIPE.epochs,
    learning_rate: float = RECIPE.learning_rate,
    batch_size: int = RECIPE.batch_size,
    validation_fraction: float = RECIPE.validation_fraction,
    seeds: int = 1,
    control: bool = False,
    mdl: bool = False,
    max_seq_len: int | None = None,
    output: AnyPath | None = None,
    force: bool = False,
    device: str | None = None,
    revision: str | None = None,
    offline: bool = False,
    lock: AnyPath | None = None,
) -> "Probing":
    """Train a classifier on each frozen layer of a model, as ``zoo probe`` does.

    The vectors of all layers come from one pass over the texts. They are in temporary files, and
    each number of a layer is standardized by its mean and deviation over the training data.

    Args:
        ref: the model, see ``zoo.load``.
        task: what is predicted: ``text-classification``, ``token-classification``, ``edge``, or a
            plugin's.
        train: files to train on, as fine-tuning reads them.
        eval: files to evaluate.
        text: column of the text; by default ``text``.
        pair: column of the second text of pairs.
        label: column of the label; by default ``label``.
        skip_invalid: leave out rows that cannot be used, and count them.
        compare: models that are probed in the same way, next to ``ref``.
        layers: numbers of the layers, 0 for the embeddings, negative ones from the last; by default
            all.
        pooling: how the vectors of the tokens of a text, of a word, or of a span become one; by
            default ``mean`` for texts and spans, and ``first`` for words.
        probe: ``linear``, or ``mlp`` for a classifier with a hidden layer.
        hidden_size: width of that hidden layer; 1,000 by default.
        l2: the loss has half of this, times the sum of squared weights.
        epochs: largest number of epochs.
        learning_rate: learning rate at first; it halves after each epoch without progress.
        batch_size: number of examples of a step.
        validation_fraction: share of the training texts that decides when to stop; with 0, the
            training loss does.
        seeds: number of probes of each layer, with seeds from 0.
        control: also train probes on a control task, whose labels are random, for the selectivity.
        mdl: also measure the minimum description length of the training labels by online coding.
        max_seq_len: length in tokens at which texts are cut; by default the model's limit.
        output: file to write: a page (``.html``), or a picture (``.svg`` or ``.png``) of the curves
            by layer; by default none is written.
        force: replace the file.
        device: device, such as ``cuda:1``.
        revision: branch, tag or commit of a Hub repository.
        offline: open no connection.
        lock: file that pins revisions and digests; by default ``zoo.lock``, if it exists.

    Returns:
        the scores of the probes by layer; a notebook shows the page.

    Raises:
        UsageError: the task does not exist, the data cannot be used, a label to evaluate is not in
            the training data, or the file exists or has another format.
        SourceError: the model is not available.
        VerificationError: its files are damaged.
        NonFiniteError: the model returned NaN or infinity.

    Example:
        >>> probing = zoo.probe(
        ...     "all-minilm-l6-v2",
        ...     task="token-classification",
        ...     train="en_ewt-ud-train.conllu",
        ...     eval="en_ewt-ud-dev.conllu",
        ... )  # doctest: +SKIP
        >>> probing.models[0].layers[1].mean("accuracy")  # doctest: +SKIP
        0.91
    """
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.probing.probing import probe_models, read_data
    from zoo.probing.report import Probing
    from zoo.probing.tasks import PROBE_TASKS
    from zoo.probing.tasks.base import ProbeColumns

    probe_task = PROBE_TASKS.find(task)()
    references = _references(ref, compare, revision)
    path = as_path(output, "output")
    if path is not None:
        _check_output(path, force=force)
    if hidden_size is not None and probe != "mlp":
        raise UsageError(f"{probe} probes have no hidden layer", "leave --hidden-size out")
    width = RECIPE.hidden_size if hidden_size is None else hidden_size
    recipe = ProbeRecipe(probe, width, l2, epochs, learning_rate, batch_size, validation_fraction)
    measurements = Measurements(control, mdl)
    data = read_data(
        probe_task,
        [str(path) for path in as_paths(train)],
        [str(path) for path in as_paths(eval)],
        ProbeColumns(text, pair, label),
        recipe,
        skip_invalid=skip_invalid,
    )
    text_pooling = pooling or probe_task.default_pooling
    lock_path = as_path(lock, "file")
    checkpoints = []
    for reference in references:
        checkpoint = resolve_checkpoint(
            reference, revision=revision, offline=offline, lock=lock_path
        )
        checkpoints.append((reference, checkpoint))
    models = probe_models(
        checkpoints,
        data,
        text_pooling,
        recipe,
        measurements,
        layers=layers,
        seeds=seeds,
        max_tokens=max_seq_len,
        device=device,
    )
    probing = Probing.from_models(
        probe_task, data, text_pooling, recipe, measurements, seeds, models
    )
    if path is not None:
        _write_output(probing, path)
    return probing


def _references(
    ref: AnyPath, compare: AnyPath | Sequence[AnyPath], revision: str | None
) -> list[str]:
    """Return the references of all models; raises ``UsageError`` for a revision of several."""
    compared_refs = [compare] if isinstance(compare, str | PathLike) else list(compare)
    if compared_refs and revision is not None:
        raise UsageError(
            "--revision belongs to one model, and --compare adds others", "leave it out"
        )
    return [as_reference(each) for each in (ref, *compared_refs)]


def _check_output(path: Path, *, force: bool) -> None:
    """Check that a page or a picture can be written, before anything runs."""
    from zoo.io.output.overwrite import check_file
    from zoo.report.files import check_report_file

    check_report_file(path, "probing")
    check_file(path, force=force)


def _write_output(probing: "Probing", path: Path) -> None:
    """Write the page, or the picture of the curves."""
    from zoo.probing.report import draw, render
    from zoo.report.files import write_report_file

    write_report_file(path, lambda: render(probing), lambda: draw(probing))

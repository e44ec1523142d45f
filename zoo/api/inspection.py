"""``zoo.look``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.api.arguments import AnyPath, as_path, as_reference, checked
from zoo.errors import UsageError

if TYPE_CHECKING:
    from zoo.inspection.inspection import Look

TOP_K = 5


@checked
def look(
    ref: AnyPath,
    texts: str | Sequence[str],
    *,
    text_target: str | None = None,
    max_seq_len: int | None = None,
    top_k: int = TOP_K,
    output: AnyPath | None = None,
    force: bool = False,
    device: str | None = None,
    revision: str | None = None,
    offline: bool = False,
    lock: AnyPath | None = None,
) -> "Look":
    """Return what the layers of a model compute for one or two texts, as ``zoo look`` does.

    A notebook shows the page with attention, similarity and predictions. ``to_html`` returns it,
    and ``to_json`` all numbers.

    Args:
        ref: the model, see ``zoo.load``.
        texts: a text, or two to compare.
        text_target: text that the decoder of an encoder-decoder reads; by default what it
            generates.
        max_seq_len: length in tokens at which texts are cut; by default 64.
        top_k: number of predictions to keep for each position.
        output: HTML file to write the page to; by default none is written.
        force: replace the file.
        device: device, such as ``cuda:1``.
        revision: branch, tag or commit of a Hub repository.
        offline: open no connection.
        lock: file that pins revisions and digests; by default ``zoo.lock``, if it exists.

    Returns:
        tokens, hidden states, attention and predictions of each text.

    Raises:
        UsageError: there are no texts or more than two, or the file exists.
        SourceError: the model is not available.
        VerificationError: its files are damaged.

    Example:
        >>> look = zoo.look("runs/books/model", "She sat on the [MASK].")  # doctest: +SKIP
        >>> look.texts[0].stacks[0].attention[0].values.shape  # doctest: +SKIP
        (12, 12, 8, 8)
    """
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.io.output.overwrite import check_file

    reference = as_reference(ref)
    path = as_path(output, "output")
    text_list = list_of_texts(texts)
    if path is not None:
        check_file(path, force=force)
    checkpoint = resolve_checkpoint(
        reference, revision=revision, offline=offline, lock=as_path(lock, "file")
    )
    from zoo.checkpoint import load_text_tokenizer
    from zoo.inference.torch_session import TorchSession
    from zoo.inspection.inspection import Inspector

    session = TorchSession(checkpoint, device=device)
    inspector = Inspector(
        checkpoint,
        session,
        load_text_tokenizer(checkpoint),
        max_tokens=max_seq_len,
        top_k=top_k,
    )
    result = inspector.look(reference, text_list, text_target)
    if path is not None:
        write_page(result, path)
    return result


def list_of_texts(texts: str | Sequence[str]) -> list[str]:
    """Return one text or two as a list."""
    text_list = [texts] if isinstance(texts, str) else list(texts)
    if not 1 <= len(text_list) <= 2:
        raise UsageError(f"{len(text_list)} texts are given", "give one, or two to compare")
    return text_list


def write_page(look: "Look", path: Path) -> None:
    """Write the page of a look to a file."""
    from zoo.inspection.page import render
    from zoo.io.output.atomic import atomic_write
    from zoo.io.output.full_disks import writing

    with writing(path):
        atomic_write(path, render(look).encode())

"""``zoo.look``."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from zoo.api.arguments import RANGES, AnyPath, as_path, as_reference, checked, require_range
from zoo.errors import UsageError
from zoo.inspection.formats import View

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.inspection.inspection import Look, TextView
    from zoo.tokenizers import TextTokenizer

TOP_K = 5


class LookPage:
    """What the layers of a model compute for one or two texts, which a notebook shows as a page.

    Args:
        look: the values.

    Attributes:
        look: model, family, head, and the mixes of layers.
        texts: tokens, hidden states, attention and predictions of each text.
    """

    def __init__(self, look: "Look") -> None:
        self.look = look
        self.texts: list[TextView] = look.texts

    def __repr__(self) -> str:
        """Return the model and the texts."""
        texts = ", ".join(repr(view.text) for view in self.texts)
        return f"<look of {self.look.model} at {texts}>"

    def to_html(self) -> str:
        """Return the page, which needs no network."""
        from zoo.inspection.page import render

        return render(self.look)

    def to_json(self) -> dict[str, Any]:
        """Return all numbers exactly, as ``zoo look --json`` prints them."""
        return self.look.to_json()

    def _repr_html_(self) -> str:
        """Return the page in a frame, for notebooks."""
        from zoo.report.cells import page_cell

        return page_cell(f"look of {self.look.model}", self.to_html())


@checked
def look(
    ref: AnyPath,
    texts: str | Sequence[str] = (),
    *,
    compare: AnyPath | Sequence[AnyPath] = (),
    text_target: str | None = None,
    max_seq_len: int | None = None,
    top_k: int = TOP_K,
    output: AnyPath | None = None,
    view: View | None = None,
    layer: int | None = None,
    head: int | None = None,
    force: bool = False,
    device: str | None = None,
    revision: str | None = None,
    offline: bool = False,
    lock: AnyPath | None = None,
) -> LookPage:
    """Return what the layers of a model compute for one or two texts, as ``zoo look`` does.

    A notebook shows the page with attention, similarity and predictions. ``to_html`` returns it,
    and ``to_json`` all numbers.

    Args:
        ref: the model, see ``zoo.load``.
        texts: a text, or two to compare.
        compare: models that read the same texts, next to ``ref`` on the page; their values are in
            ``look.compared``.
        text_target: text that the decoder of an encoder-decoder reads; by default what it
            generates.
        max_seq_len: length in tokens at which texts are cut; by default 64.
        top_k: number of predictions to keep for each position.
        output: file to write: the page (``.html``) or a picture (``.svg`` or ``.png``); by default
            none is written.
        view: what a picture shows; by default attention, or similarity for a model that computes
            no attention.
        layer: layer that a picture shows; by default the last one, and for predictions all. 0 is
            the embeddings.
        head: head whose attention a picture shows, from 1; by default the mean of all heads.
        force: replace the file.
        device: device, such as ``cuda:1``.
        revision: branch, tag or commit of a Hub repository.
        offline: open no connection.
        lock: file that pins revisions and digests; by default ``zoo.lock``, if it exists.

    Returns:
        tokens, hidden states, attention and predictions of each text.

    Raises:
        UsageError: there are no texts or more than two, the file exists or has another format, or
            the model has no such view, layer or head.
        SourceError: the model is not available.
        VerificationError: its files are damaged.

    Example:
        >>> look = zoo.look("runs/books/model", "She sat on the [MASK].")  # doctest: +SKIP
        >>> look.texts[0].stacks[0].attention[0].values.shape  # doctest: +SKIP
        (12, 12, 8, 8)
    """
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.inspection.formats import PictureSettings, check_layer_and_head, check_output
    from zoo.io.output.overwrite import check_file

    compared_refs = [compare] if isinstance(compare, str | PathLike) else list(compare)
    references = [as_reference(each) for each in (ref, *compared_refs)]
    path = as_path(output, "output")
    list_of_texts(texts)  # before a model is loaded
    picture = PictureSettings(view, layer, head)
    check_output(path, picture, compares_models=bool(compared_refs))
    if compared_refs and revision is not None:
        raise UsageError(
            "--revision belongs to one model, and --compare adds others", "leave it out"
        )
    if path is not None:
        check_file(path, force=force)
    checkpoints = []
    for reference in references:
        checkpoint = resolve_checkpoint(
            reference, revision=revision, offline=offline, lock=as_path(lock, "file")
        )
        checkpoints.append(checkpoint)
    check_layer_and_head(checkpoints[0], references[0], picture)
    from zoo.checkpoint import load_text_tokenizer
    from zoo.inference.task_warnings import collect_cut_texts
    from zoo.inference.torch_session import TorchSession
    from zoo.inspection.output import write_output

    looks = []
    has_target = False
    with collect_cut_texts():
        for reference, checkpoint in zip(references, checkpoints, strict=True):
            session = TorchSession(checkpoint, device=device)
            target = text_target
            if compared_refs and "decoder_input_ids" not in session.inputs:
                target = None
            has_target = has_target or target is not None
            page = look_at(
                checkpoint,
                load_text_tokenizer(checkpoint),
                session,
                texts,
                name=reference,
                text_target=target,
                max_seq_len=max_seq_len,
                top_k=top_k,
            )
            looks.append(page.look)
    if text_target is not None and not has_target:
        raise UsageError(
            "none of the models has a decoder that reads a target",
            "--text-target is for encoder-decoders",
        )
    first_look = replace(looks[0], compared=looks[1:])
    if path is not None:
        write_output(first_look, path, picture)
    return LookPage(first_look)


def look_at(
    checkpoint: "Checkpoint",
    tokenizer: "TextTokenizer",
    session: "Session",
    texts: str | Sequence[str],
    *,
    name: str | None = None,
    text_target: str | None = None,
    max_seq_len: int | None = None,
    top_k: int = TOP_K,
) -> LookPage:
    """Return what the layers of a loaded model compute; ``name`` is its name on the page."""
    from zoo.inference.torch_session import TorchSession
    from zoo.inspection.inspection import Inspector

    text_list = list_of_texts(texts)
    require_range("top_k", top_k, RANGES["top_k"])
    if max_seq_len is not None:
        require_range("max_seq_len", max_seq_len, RANGES["max_seq_len"])
    if not isinstance(session, TorchSession):
        session = TorchSession(checkpoint)
    inspector = Inspector(checkpoint, session, tokenizer, max_tokens=max_seq_len, top_k=top_k)
    return LookPage(inspector.look(name or checkpoint.path.name, text_list, text_target))


def list_of_texts(texts: str | Sequence[str]) -> list[str]:
    """Return one text or two as a list."""
    text_list = [texts] if isinstance(texts, str) else list(texts)
    if not 1 <= len(text_list) <= 2:
        raise UsageError(f"{len(text_list)} texts are given", "give one, or two to compare")
    return text_list

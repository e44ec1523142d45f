"""Formats of ``zoo look``: a page or a picture, and what a picture shows. Imports no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from zoo.errors import UsageError
from zoo.report.files import PICTURES, check_report_file

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

View = Literal["attention", "similarity", "predictions"]
VIEWS: tuple[View, ...] = ("attention", "similarity", "predictions")


@dataclass(frozen=True)
class PictureSettings:
    """What a picture shows."""

    # By default attention, or similarity for a model that computes no attention.
    view: View | None = None
    # A layer of the view, by default the last one; 0 is the embeddings, which have no attention.
    layer: int | None = None
    head: int | None = None  # A head of attention, from 1; by default the mean of all heads.


def check_output(
    path: Path | None, settings: PictureSettings, *, compares_models: bool = False
) -> None:
    """Check the name of a file, and that what is selected fits it, before anything is computed.

    Raises:
        UsageError: the file has another format, a page has settings of a picture, or the package
            that writes PNG is missing.
    """
    suffix = "" if path is None else path.suffix.lower()
    if path is not None:
        check_report_file(path, "a look")
    if suffix not in PICTURES:
        if settings != PictureSettings():
            raise UsageError(
                "--view, --layer and --head select what a picture shows",
                "name one that ends in .svg or .png, such as -o look.svg",
            )
        return
    if compares_models:
        raise UsageError(
            "a picture shows one model, and --compare several",
            "write a page, such as -o look.html, or leave --compare out",
        )
    if settings.head is not None and settings.view in ("similarity", "predictions"):
        raise UsageError(
            f"--head selects attention, and the view is {settings.view}", "leave --head out"
        )
    if settings.layer == 0 and settings.view == "attention":
        raise UsageError("layers of attention are numbered from 1", "give --layer 1")


def check_layer_and_head(checkpoint: "Checkpoint", name: str, settings: PictureSettings) -> None:
    """Check the layer and the head of a picture by a model's configuration.

    The stacks of an encoder-decoder may differ, and are checked when the picture is drawn.

    Args:
        checkpoint: the model.
        name: name of the model, for messages.
        settings: what the picture shows.

    Raises:
        UsageError: the model has fewer layers or heads.
    """
    if "decoder_input_ids" in checkpoint.onnx_spec.inputs:
        return
    num_layers = getattr(checkpoint.config, "num_layers", None)
    if settings.layer is not None and num_layers is not None and settings.layer > num_layers:
        raise UsageError(
            f"{name} has no layer {settings.layer}",
            f"its layers are 0 (the embeddings) to {num_layers}",
        )
    num_heads = getattr(checkpoint.config, "num_heads", None)
    if settings.head is not None and num_heads is not None and settings.head > num_heads:
        raise UsageError(f"{name} has no head {settings.head}", f"its heads are 1 to {num_heads}")

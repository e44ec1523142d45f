"""Options of the target."""

from typing import Annotated

from msgspec import Meta

from zoo.exporting.targets.base import TargetOptions


class StaticOptions(TargetOptions, frozen=True, kw_only=True):
    """Options of the vectors; the defaults are those of the authors' library."""

    dim: Annotated[int, Meta(ge=1, description="Number of principal components.")] = 256
    sif_coefficient: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Weight of rare tokens in static embeddings; 0 for equal weights.",
        ),
    ] = 0.0001

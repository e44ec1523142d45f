"""Models and data of ``benchmarks.cuda``, made once."""

from pathlib import Path
from typing import Any

from benchmarks._cuda_cells import Barrier, Cell
from benchmarks._cuda_finetuning import make_data
from benchmarks._cuda_inference import make_models


def measure(cell: Cell, barrier: Barrier) -> dict[str, Any]:
    """Write the models of inference and the data of fine-tuning."""
    make_models(Path(cell.folder), smoke=cell.tiny)
    make_data(Path(cell.folder), tiny=cell.tiny)
    return {}

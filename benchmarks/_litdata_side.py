"""The side of litdata in ``benchmarks.row_plan``, and the measurement that all sides share.

A program of an environment with litdata, which needs nothing of this package::

    PYTHON _litdata_side.py FOLDER TOKENS

FOLDER gets chunks without blocks, in the layout of ``litdata.optimize`` with ``TokensLoader``.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

CHUNK_TOKENS = 1 << 25
LENGTH = 512
ROWS = 256
POSITION = 0.9


class Measure:
    """CPU time and memory of this process, from now on."""

    def __init__(self) -> None:
        # 5 sets the peak of the resident set size to its present value (proc(5)).
        Path("/proc/self/clear_refs").write_text("5")
        self.first_rss = memory_kb("VmHWM")
        self.first_private = memory_kb("RssAnon")
        self.start = time.process_time()
        self.open_seconds = 0.0

    def opened(self) -> None:
        """Note that the position is reached."""
        self.open_seconds = time.process_time() - self.start

    def finished(self, spans: list[Any]) -> dict[str, Any]:
        """Return the measurements; ``spans`` are what was read."""
        return {
            "open_seconds": self.open_seconds,
            "step_seconds": time.process_time() - self.start - self.open_seconds,
            "peak_mb": (memory_kb("VmHWM") - self.first_rss) / 1024,
            "private_mb": (memory_kb("RssAnon") - self.first_private) / 1024,
            "spans": spans,
        }


def memory_kb(name: str) -> int:
    """Return a value of ``/proc/self/status`` in KB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise ValueError(f"/proc/self/status has no {name}")


def write_chunks(folder: Path, tokens: int) -> None:
    """Write chunks of zeros that take no place, and ``index.json``."""
    import numpy as np
    from litdata.constants import _NUMPY_DTYPES_MAPPING

    (dtype,) = (key for key, value in _NUMPY_DTYPES_MAPPING.items() if value == np.uint16)
    folder.mkdir()
    chunks = []
    for number in range(-(-tokens // CHUNK_TOKENS)):
        path = folder / f"chunk-0-{number}.bin"
        size = 12 + 2 * CHUNK_TOKENS
        with path.open("wb") as file:
            # Number of items, start of the only one, and its end.
            file.write(np.array([1, 12, size], np.uint32).tobytes())
            file.truncate(size)
        chunks.append(
            {"chunk_bytes": size, "chunk_size": 1, "dim": CHUNK_TOKENS, "filename": path.name}
        )
    config = {
        "chunk_bytes": 2 * CHUNK_TOKENS,
        "chunk_size": None,
        "compression": None,
        "encryption": None,
        "data_format": [f"no_header_numpy:{dtype}"],
        "data_spec": '[1, {"type": null, "context": null, "children_spec": []}]',
        "item_loader": "TokensLoader",
    }
    index = {"chunks": chunks, "config": config, "updated_at": "0"}
    (folder / "index.json").write_text(json.dumps(index))


def main() -> None:
    from litdata import StreamingDataset, TokensLoader

    folder = Path(sys.argv[1])
    write_chunks(folder, int(sys.argv[2]))
    measure = Measure()
    loader = TokensLoader(block_size=LENGTH)
    dataset = StreamingDataset(input_dir=str(folder), item_loader=loader, shuffle=True, seed=0)
    first_row = int(POSITION * len(dataset)) // ROWS * ROWS
    dataset.load_state_dict(dataset.state_dict(first_row, 0, ROWS))
    rows = iter(dataset)
    next(rows)
    measure.opened()
    for _ in range(ROWS - 1):
        next(rows)
    print(json.dumps(measure.finished([])))


if __name__ == "__main__":
    main()

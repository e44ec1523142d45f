"""Peak memory of the export of a large model, and of a batch of the exported one.

A model of a family's size with random weights is written, exported by ``zoo export`` and run in
ONNX Runtime, each in a process of its own; the peaks of their resident sets are printed, also as
multiples of the weights.

    python -m benchmarks.export_memory bert large
    python -m benchmarks.export_memory gpt large --head causal-lm
"""

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks._common import machine, run_process, table
from zoo.checkpoint import WEIGHTS
from zoo.exporting.startup import StartupSettings

# of the batch
ROWS = 1
TOKENS = 64
MAKE = """
import sys
from pathlib import Path
import torch
from tests.inference.making import store
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.plugins import get_family
family, config = get_family(sys.argv[1]), get_family(sys.argv[1]).sizes()[sys.argv[2]]
with init_empty_weights():
    model = family.model(config, sys.argv[3])
model = model.to_empty(device="cpu").eval()
generator = torch.Generator().manual_seed(0)
with torch.no_grad():
    for name, tensor in model.state_dict().items():
        tensor.normal_(1.0 if "norm.weight" in name else 0.0, 0.02, generator=generator)
store(Path(sys.argv[4]), model, family, config, sys.argv[3])
"""


def main() -> None:
    """Print a row for the export and one for the run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.export_memory")
    parser.add_argument("family")
    parser.add_argument("size")
    parser.add_argument("--head", default="none")
    parser.add_argument("--folder", type=Path, help="where files are written; they are removed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        model = Path(scratch, "model")
        graph = Path(scratch, "graph")
        names = (options.family, options.size, options.head)
        run_process([sys.executable, "-c", MAKE, *names, str(model)])
        size = (model / WEIGHTS).stat().st_size
        zoo = [sys.executable, "-m", "zoo", "export", str(model), "--onnx", "-o", str(graph)]
        settings = StartupSettings(path=str(graph), backend="onnx", batch_size=ROWS, seq_len=TOKENS)
        batch = msgspec.json.encode(settings).decode()
        rows = []
        for name, argv in (
            ("export", zoo),
            (f"{ROWS} x {TOKENS} tokens", [sys.executable, "-m", "zoo.exporting.startup", batch]),
        ):
            measured = run_process(argv)
            rows.append(
                (
                    name,
                    f"{measured.seconds:.0f} s",
                    f"{measured.peak_mb / 1e3:.2f} GB",
                    f"{measured.peak_mb * 1e6 / size:.2f}",
                )
            )
        print(f"{' '.join(names)}: {size / 1e9:.2f} GB of weights; {machine()}\n")
        print(table(("process", "time", "peak memory", "of the weights"), rows))


if __name__ == "__main__":
    main()

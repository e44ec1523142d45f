"""The command line, which also writes a digest of the token ids of each row that it reads.

Its arguments are FOLDER followed by those of the command line. Each process appends lines with
step, place in the step and digest to a file of its own.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from blake3 import blake3

from zoo.cli import main as run_command
from zoo.training.dataloader import BatchLoader


def main() -> None:
    folder, *words = sys.argv[1:]
    make_batch = BatchLoader.make_batch

    def make_and_write(loader: BatchLoader, step: int, micro: Any) -> Any:
        batch = make_batch(loader, step, micro)
        if loader.purpose == "train":
            with Path(folder, f"{os.getpid()}.jsonl").open("a") as file:
                for place, ids in zip(micro, batch.tensors["input_ids"], strict=True):
                    digest = blake3(ids.numpy().tobytes()).hexdigest()
                    file.write(json.dumps([step, place, digest]) + "\n")
        return batch

    patched: Any = BatchLoader
    patched.make_batch = make_and_write
    sys.argv = ["zoo", *words]
    run_command()


if __name__ == "__main__":
    main()

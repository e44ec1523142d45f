"""Masked-word loss on long passages: a RoBERTa with more positions against one that reads windows.

    python -m benchmarks.grown_positions FOLDER [--size small|minilm] [--steps N] [--seeds 3]
        [--threads 2] [--quick] [--output DIR]

FOLDER has books, files that end in .txt; each file is a document. The last eighth of them by path,
and at least one, is held out. For each seed, a RoBERTa is pretrained on short rows, grown to 512
positions and trained on with rows of 512 tokens, and five models are compared:

* the original, which reads the passages in overlapping windows;
* the original, grown to 2,048 positions by ``zoo convert --max-seq-len``, and not trained;
* the same, trained on for 100 steps with rows of 2,048 tokens;
* the original, grown to a Longformer of 2,048 positions, trained on for 100 steps likewise;
* the original, trained on for 100 steps with as many tokens, in rows of 512; it reads windows.

The last one is the control: it differs from the grown models in the context only, and not in the
number of tokens that it was trained on. Longer context helps if a grown model has a lower loss than
the control with every seed. If the seeds do not agree, it is a null result.

The loss is the mean cross-entropy, in nats, of the tokens of passages that fill 2,048 positions
with the special tokens. A seventh of the tokens of a passage is masked at a time, so that each is
predicted once. All models predict the same tokens with the same tokens masked; of the windows that
have a token, the one with most context on both sides predicts it. The first row of the table is
the loss of a model that only knows how frequent tokens are. If the original is not well below it,
it has learned too little to use any context, and there is no conclusion. That is
why pretraining begins with short rows.

The size ``small`` has 2 layers of 128, and a seed of it takes some fifteen minutes of one core.
``minilm`` has 6 layers of 384: a step with a row of 2,048 tokens takes some five
seconds of one core, and a seed more than an hour. ``--quick`` only checks that all of it works: 2
layers of 128, rows of 128 tokens, 512 positions, few steps, four books and one thread.
``--output DIR`` keeps models and results, and does not repeat the seeds and the runs in it.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks._common import RunResults, machine, table, versions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Tokens = NDArray[np.int64]  # (tokens,)

HELD_OUT = 8  # One book of this number is held out.
MASKS_PER_PASSAGE = 7  # Each masks a seventh of the tokens, 14.3 %.
LEAST_LEARNED = 0.1  # Nats below the frequencies of tokens, for a conclusion.
FREQUENCIES = "frequencies of tokens"
ORIGINAL = "original, windows"
GROWN = "grown RoBERTa, not trained further"
GROWN_ROBERTA = "grown RoBERTa, trained further"
GROWN_LONGFORMER = "grown Longformer, trained further"
CONTROL = "control: original, trained further, windows"
Result = dict[str, dict[str, float]]  # Model -> loss, parameters and tokens.


class Scale(NamedTuple):
    """Sizes of models, rows and passages.

    Attributes:
        layers: number of layers.
        hidden_size: width.
        initializer_range: standard deviation of new weights.
        vocab_size: number of tokens of the tokenizer that is trained.
        short_seq_len: tokens of a row of the first stage of pretraining.
        seq_len: tokens of a row of the original, and of a window.
        grown_seq_len: tokens of a row of the grown models.
        short_steps: steps of pretraining with short rows.
        steps: steps of pretraining with rows of ``seq_len`` tokens.
        tokens_per_step: tokens of a step of pretraining.
        learning_rate: highest learning rate of pretraining; further training has half of it.
        further_steps: steps of further training.
        further_rows: rows of ``grown_seq_len`` tokens in a step of further training.
        passages: number of passages.
    """

    layers: int
    hidden_size: int
    initializer_range: float
    vocab_size: int
    short_seq_len: int
    seq_len: int
    grown_seq_len: int
    short_steps: int
    steps: int
    tokens_per_step: int
    learning_rate: float
    further_steps: int
    further_rows: int
    passages: int


# Learning rates and initial weights follow the tiny recipe, scaled to the wider model.
SMALL = Scale(
    layers=2,
    hidden_size=128,
    initializer_range=0.05,
    vocab_size=600,
    short_seq_len=64,
    seq_len=512,
    grown_seq_len=2048,
    short_steps=800,
    steps=200,
    tokens_per_step=8192,
    learning_rate=2e-3,
    further_steps=100,
    further_rows=1,
    passages=12,
)
MINILM = SMALL._replace(
    layers=6,
    hidden_size=384,
    initializer_range=0.03,
    vocab_size=1000,
    short_steps=1000,
    steps=400,
    learning_rate=1e-3,
)
SCALES = {"small": SMALL, "minilm": MINILM}
QUICK = SMALL._replace(
    short_seq_len=32,
    seq_len=128,
    grown_seq_len=512,
    short_steps=20,
    steps=10,
    tokens_per_step=4096,
    further_steps=40,
    passages=4,
)
QUICK_BOOKS = 4


class Window(NamedTuple):
    """A window of a passage, and the tokens that it predicts, as positions in the passage."""

    start: int
    first: int
    last: int


def plan_windows(length: int, width: int) -> list[Window]:
    """Return windows that share about a quarter of their tokens with the next.

    A token belongs to the window in which it has most context on both sides.

    Args:
        length: number of tokens of the passage.
        width: number of its tokens in a window; a longer one reads the passage at once.
    """
    width = min(width, length)
    step = max(1, width - width // 4)
    starts = [*range(0, length - width, step), length - width]
    windows = []
    first = 0
    for number, start in enumerate(starts):
        last = length
        if number + 1 < len(starts):
            shared_end = start + width
            last = (starts[number + 1] + shared_end) // 2
        windows.append(Window(start, first, last))
        first = last
    return windows


def draw_masks(length: int, passage: int) -> "list[Tokens]":
    """Return sets of positions to mask, sorted; each position of the passage is in one of them."""
    import numpy as np

    from zoo.data.rng import generator

    shuffled = generator(0, "masks", passage).permutation(length)
    return [np.sort(positions) for positions in np.array_split(shuffled, MASKS_PER_PASSAGE)]


def masked_loss(
    model: Any, passages: "Sequence[Tokens]", special: Mapping[str, int], max_tokens: int
) -> float:
    """Return the mean cross-entropy of all tokens of passages, in nats.

    Args:
        model: a masked language model of the zoo, in evaluation mode.
        passages: token ids without special tokens.
        special: ids of the special tokens ``begin``, ``end`` and ``mask``.
        max_tokens: number of tokens that the model reads, special ones included.
    """
    import torch
    from torch.nn import functional as F

    total = 0.0
    count = 0
    for number, passage in enumerate(passages):
        ids = torch.from_numpy(passage)
        width = min(max_tokens - 2, len(passage))
        windows = plan_windows(len(passage), width)
        for positions in draw_masks(len(passage), number):
            masked = ids.clone()
            masked[positions] = special["mask"]
            rows = torch.full((len(windows), width + 2), special["begin"])
            rows[:, -1] = special["end"]
            places = []
            for row, window in enumerate(windows):
                rows[row, 1:-1] = masked[window.start : window.start + width]
                is_predicted = (positions >= window.first) & (positions < window.last)
                place = positions[is_predicted] - window.start + 1
                places.append(torch.from_numpy(place + row * (width + 2)))
            with torch.inference_mode():
                hidden = model.encode_at(torch.cat(places), rows)
                logits = model.scores(hidden).float()
                # Windows predict tokens in their order in the passage.
                total += float(F.cross_entropy(logits, ids[positions], reduction="sum"))
            count += len(positions)
    return total / count


def frequency_loss(counts: "NDArray[np.int64]", passages: "Sequence[Tokens]") -> float:
    """Return the mean cross-entropy of the tokens of passages by their counts in other text."""
    import numpy as np

    smoothed = counts + 1
    logs = np.log(smoothed / smoothed.sum())
    return float(-logs[np.concatenate(passages)].mean())


def split_books(folder: Path, most: int | None = None) -> tuple[list[Path], list[Path]]:
    """Return the books to train on, and those that are held out, of the first ``most`` by path."""
    books = sorted(folder.rglob("*.txt"))[:most]
    if len(books) < 2:
        sys.exit(f"error: {folder} has {len(books)} files that end in .txt: give two or more")
    held_out = max(1, len(books) // HELD_OUT)
    return books[:-held_out], books[-held_out:]


def select_passages(split: Any, length: int, count: int) -> "list[Tokens]":
    """Return up to ``count`` passages without overlaps, spread evenly over the documents."""
    import numpy as np

    starts = list[int]()
    for document in range(split.num_documents):
        begin, end = split.document_span(document)
        starts += range(begin, end - length + 1, length)
    if not starts:
        sys.exit(f"error: no held-out book has {length:,} tokens: give longer ones")
    chosen_starts = starts
    if len(starts) > count:
        numbers = np.linspace(0, len(starts) - 1, count).round().astype(int)
        chosen_starts = [starts[number] for number in numbers]
    return [split.read(start, start + length) for start in chosen_starts]


class Comparison:
    """The models of one seed.

    Args:
        books: the books to train on, and those that are held out.
        scale: sizes.
        seed: seed of pretraining and of further training.
        folder: directory for the runs.
        threads: number of threads.
    """

    def __init__(
        self,
        books: tuple[list[Path], list[Path]],
        scale: Scale,
        seed: int,
        folder: Path,
        threads: int,
    ) -> None:
        self.train_books, self.held_out_books = books
        self.scale = scale
        self.seed = seed
        self.folder = folder
        self.threads = threads

    def measure(self) -> Result:
        """Train and evaluate all models."""
        from zoo.training.logging.run_history import RunHistory

        scale = self.scale
        original = self._pretrain()
        pretrained_tokens = (scale.short_steps + scale.steps) * scale.tokens_per_step
        self.corpus = Path(RunHistory.read(original).manifest["corpus"])
        self._prepare_passages(original)
        self.results: Result = {FREQUENCIES: self.frequencies}
        self._add(ORIGINAL, original / "model", pretrained_tokens)
        grown = self._grow("grown", original, scale.grown_seq_len)
        longformer = self._grow(
            "grown-longformer", original, scale.grown_seq_len, family="longformer"
        )
        self._add(GROWN, grown, pretrained_tokens)
        further_tokens = scale.further_steps * scale.further_rows * scale.grown_seq_len
        tokens = pretrained_tokens + further_tokens
        run = self._train_further("roberta", grown, "roberta", scale.grown_seq_len)
        self._add(GROWN_ROBERTA, run / "model", tokens)
        run = self._train_further("longformer", longformer, "longformer", scale.grown_seq_len)
        self._add(GROWN_LONGFORMER, run / "model", tokens)
        run = self._train_further("control", original / "model", "roberta", scale.seq_len)
        self._add(CONTROL, run / "model", tokens)
        return self.results

    def _pretrain(self) -> Path:
        """Train the original, on short rows first, and return the directory of its last run."""
        from zoo.training.logging.run_history import RunHistory

        scale = self.scale
        config = {
            "config.num_layers": scale.layers,
            "config.hidden_size": scale.hidden_size,
            "config.num_heads": scale.hidden_size // 32,
            "config.intermediate_size": 4 * scale.hidden_size,
            "config.initializer_range": scale.initializer_range,
            "config.max_positions": scale.short_seq_len + 2,  # Two that no text has.
        }
        short = self._run(
            "short",
            "roberta",
            scale.short_steps,
            {
                **config,
                "vocab_size": scale.vocab_size,
                # A long row is one text only if the file is one document.
                "data.reader.document_separator": "file",
            },
            train=self.train_books,
            eval=self.held_out_books,
            max_seq_len=scale.short_seq_len,
            global_batch_tokens=scale.tokens_per_step,
            learning_rate=scale.learning_rate,
            tokenizer="train",
        )
        start = self._grow("short-grown", short, scale.seq_len)
        return self._run(
            "original",
            "roberta",
            scale.steps,
            {"seq_len_warmup": None},
            init_from=start,
            train=Path(RunHistory.read(short).manifest["corpus"]),
            max_seq_len=scale.seq_len,
            global_batch_tokens=scale.tokens_per_step,
            learning_rate=scale.learning_rate,
        )

    def _grow(self, name: str, run: Path, seq_len: int, family: str | None = None) -> Path:
        """Give the model of a run more positions, and return its directory."""
        import zoo

        folder = self.folder / name
        zoo.convert(
            run / "model",
            max_seq_len=seq_len,
            family=family,
            output=folder,
            offline=True,
            force=True,
        )
        return folder

    def _train_further(self, name: str, start: Path, family: str, seq_len: int) -> Path:
        scale = self.scale
        return self._run(
            f"{name}-trained-further",
            family,
            scale.further_steps,
            {"seq_len_warmup": None},
            init_from=start,
            train=self.corpus,
            max_seq_len=seq_len,
            global_batch_tokens=scale.further_rows * scale.grown_seq_len,
            learning_rate=scale.learning_rate / 2,
        )

    def _run(
        self, name: str, family: str, steps: int, settings: Mapping[str, Any], **arguments: Any
    ) -> Path:
        """Train a model unless it is there, and return the directory of its run."""
        import zoo
        from zoo.checkpoint import is_checkpoint

        folder = self.folder / name
        if is_checkpoint(folder / "model"):
            return folder
        shutil.rmtree(folder, ignore_errors=True)  # It was interrupted.
        started = time.perf_counter()
        training = zoo.pretrain(
            family,
            size="tiny",  # Its recipe, which begins with short rows; the configuration differs.
            max_steps=steps,
            seed=self.seed,
            device="cpu",
            threads=self.threads,
            offline=True,
            output=folder,
            settings={
                "lr_scheduler.warmup_steps": steps // 10,
                "eval_steps": steps,
                "save_steps": steps,
                "eval_sequences": 4,
                "report_to": [],
                **settings,
            },
            **arguments,
        )
        print(f"seed {self.seed}, {name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
        return training.run

    def _prepare_passages(self, run: Path) -> None:
        import numpy as np
        from tokenizers import Tokenizer

        from zoo.data.corpus import Corpus

        corpus = Corpus(self.corpus)
        tokenizer = Tokenizer.from_file(str(run / "model" / "tokenizer.json"))
        begin, end = tokenizer.encode("").ids
        mask = tokenizer.get_vocab()["<mask>"]
        self.special = {"begin": begin, "end": end, "mask": mask}
        length = self.scale.grown_seq_len - 2  # The special tokens at the beginning and the end.
        self.passages = select_passages(corpus.split("validation"), length, self.scale.passages)
        counts = np.zeros(tokenizer.get_vocab_size(), dtype=np.int64)
        train_split = corpus.split("train")
        for document in range(train_split.num_documents):
            ids = train_split.read(*train_split.document_span(document))
            counts += np.bincount(ids, minlength=len(counts))
        loss = frequency_loss(counts, self.passages)
        predicted = length * len(self.passages)
        self.frequencies = {"loss": loss, "predicted": predicted}

    def _add(self, name: str, path: Path, tokens: int) -> None:
        """Evaluate a model."""
        from zoo.checkpoint import load_checkpoint
        from zoo.inference.load_model import load_model

        checkpoint = load_checkpoint(path)
        model = load_model(checkpoint)
        limit = checkpoint.family.max_seq_len(checkpoint.config)
        assert limit is not None, "it has a table of positions"
        started = time.perf_counter()
        loss = masked_loss(model, self.passages, self.special, limit)
        seconds = time.perf_counter() - started
        parameters = sum(parameter.numel() for parameter in model.parameters())
        self.results[name] = {"loss": loss, "parameters": parameters, "tokens": tokens}
        line = f"seed {self.seed}, {name}: loss {loss:.4f} (evaluated in {seconds:.0f} s)"
        print(line, file=sys.stderr, flush=True)


def result_table(results: Sequence[Result]) -> str:
    """Return the table of all models, with a result for each seed."""
    header = ["masked-word loss", "mean"]
    header += [f"seed {seed}" for seed in range(len(results))]
    rows = []
    for name, values in results[0].items():
        losses = [result[name]["loss"] for result in results]
        row = [name, f"{statistics.mean(losses):.4f}", *(f"{loss:.4f}" for loss in losses)]
        for count in ("parameters", "tokens"):
            row.append(f"{values[count]:,}" if count in values else "")
        rows.append(row)
    return table([*header, "parameters", "tokens seen"], rows)


def conclude(name: str, results: Sequence[Result]) -> str:
    """Return a sentence that says whether a grown model is better than the control."""
    differences = [result[name]["loss"] - result[CONTROL]["loss"] for result in results]
    count = len(differences)
    values = f"mean difference from the control {statistics.mean(differences):+.4f} nats"
    nats_learned = [result[FREQUENCIES]["loss"] - result[CONTROL]["loss"] for result in results]
    if min(nats_learned) < LEAST_LEARNED:
        return f"{name}: no conclusion, the models know little but frequencies ({values})."
    if count == 1:
        return f"{name}: {values}; one seed does not show whether longer context helps."
    values += f", {min(differences):+.4f} to {max(differences):+.4f}"
    if all(difference < 0 for difference in differences):
        return f"{name}: longer context helps with all {count} seeds ({values})."
    if all(difference > 0 for difference in differences):
        return f"{name}: the loss is higher with all {count} seeds ({values})."
    return f"{name}: a null result, the {count} seeds do not agree in sign ({values})."


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and what follows from it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=list(SCALES), default="small")
    parser.add_argument("--steps", type=int, help="steps of pretraining with short rows")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="2, or 1 with --quick")
    parser.add_argument("--quick", action="store_true", help="small models and few steps")
    parser.add_argument("--output", type=Path, help="directory for the runs and their results")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error("--seeds must be 1 or more")
    import torch

    threads = options.threads or (1 if options.quick else 2)
    torch.set_num_threads(threads)
    scale = QUICK if options.quick else SCALES[options.size]
    if options.steps is not None:
        scale = scale._replace(short_steps=options.steps)
    books = split_books(options.folder, QUICK_BOOKS if options.quick else None)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.output or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        made_with = {"folder": options.folder.resolve(), **scale._asdict()}
        runs = RunResults(folder / "results.jsonl", made_with)
        for seed in range(options.seeds):
            name = f"seed {seed}"
            if name in runs.known:
                continue
            seed_folder = folder / f"seed-{seed}"
            comparison = Comparison(books, scale, seed, seed_folder, threads)
            runs.add(name, comparison.measure())
        results = [runs.known[f"seed {seed}"] for seed in range(options.seeds)]
    print(result_table(results))
    print()
    for name in (GROWN_ROBERTA, GROWN_LONGFORMER):
        print(conclude(name, results))
    predicted = int(results[0][FREQUENCIES]["predicted"])
    print(
        f"\n{predicted:,} tokens predicted; {len(books[1])} of {len(books[0]) + len(books[1])}"
        f" books held out; {scale.short_steps:,} + {scale.steps:,} steps of pretraining"
    )
    print(f"{machine(threads)}; {versions('torch', 'tokenizers')}")


if __name__ == "__main__":
    main()

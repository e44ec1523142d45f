"""Masked language modelling on a CPU: the zoo, the ``Trainer`` of transformers, and a plain loop.

    python -m benchmarks.pretrain FOLDER [--threads 2] [--steps 60] [--rounds 3]

Target: 1.1 times the tokens per second of the plain loop.

FOLDER holds text files in which blank lines end documents. All train the same model, 4 layers with
hidden size 256, with one tokenizer, on those texts:

* ``zoo pretrain`` packs documents into rows of 128 tokens, 2,048 tokens per step;
* the Trainer on *padded documents*, 32 per step, truncated to 128 tokens: its example for texts of
  different lengths, with its defaults;
* the Trainer on *blocks*: documents concatenated and cut into rows of 128, as by run_mlm.py, with
  fused AdamW, 2,048 tokens per step;
* a *plain loop* over the same blocks with the model of transformers, fused AdamW and gradient
  clipping, masks drawn for the whole batch at once, and logits of masked positions alone: what one
  would write by hand for speed.

Padding does not count as tokens. Loading, evaluation and saving are not measured. First, the losses
of one batch with the same weights are compared.
"""

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._common import machine, versions, zoo
from benchmarks._sides import (
    Measured,
    Side,
    add_side_options,
    alternate_sides,
    is_side,
    speed_table,
    timed_steps,
)
from benchmarks._trainer import trainer_speed

LENGTH = 128
DOCUMENTS = 32
BATCH = 2048
WINDOW = 50
CORPUS = "corpus"  # folder of the tokenized texts
# ids in a newly trained tokenizer
CLS = 2
SEP = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    add_side_options(parser, steps=60)
    options = parser.parse_args()
    if options.smoke:
        options.steps = WINDOW + 1
        options.rounds = 1
    if options.steps <= WINDOW:
        parser.error(f"--steps has to be more than {WINDOW}, which are timed")
    if is_side(options, SIDES):
        return
    with tempfile.TemporaryDirectory() as scratch:
        corpus = build(options.folder, Path(scratch))
        print(f"one batch, the same weights: losses differ by {difference(corpus):.1e}\n")
        timings = alternate_sides("benchmarks.pretrain", SIDES, scratch, options)
    print(f"{machine(options.threads)}; {versions('torch', 'transformers', 'accelerate')}\n")
    print(speed_table(timings, "tokens/s", list(PEERS)))


def build(folder: Path, scratch: Path) -> Path:
    """Tokenize the folder's files for all sides."""
    corpus = scratch / CORPUS
    options = ("--tokenizer", "train", "--family", "bert", "--vocab-size", "30522")
    zoo("corpus", "build", folder, "-o", corpus, *options)
    return corpus


def run_config(corpus: Path, steps: int) -> dict[str, Any]:
    return {
        "family": "bert",
        "size": "mini",
        "objective": "masked-lm",
        "objective_args": {},
        "data": {"paths": [str(corpus)]},
        "seq_len": LENGTH,
        "global_batch_tokens": BATCH,
        "max_steps": steps,
        "logging_steps": 1,
        "eval_steps": steps,
        "eval_sequences": 1,
        "save_steps": steps,
    }


def ours(scratch: Path, options: argparse.Namespace) -> Measured:
    from zoo.training.distributed.context import DistContext
    from zoo.training.logging.jsonl import PERFORMANCE_FILE, read_jsonl
    from zoo.training.run import PretrainRun

    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        run = Path(folder, "run")
        PretrainRun(
            run_config(scratch / CORPUS, options.steps),
            DistContext.initialize("cpu"),
            run,
        ).start()
        # over the last steps, without logging, evaluation and saving
        return {"rate": read_jsonl(run, PERFORMANCE_FILE)[-1]["tokens_per_second"], "losses": []}


def trainer_on_documents(scratch: Path, options: argparse.Namespace) -> Measured:
    return _trainer(scratch / CORPUS, options.steps, _documents(scratch / CORPUS), rows=DOCUMENTS)


def trainer_on_blocks(scratch: Path, options: argparse.Namespace) -> Measured:
    blocks = _blocks(scratch / CORPUS)
    examples = [{"input_ids": row, "attention_mask": [1] * LENGTH} for row in blocks]
    corpus = scratch / CORPUS
    rows = BATCH // LENGTH
    return _trainer(corpus, options.steps, examples, rows=rows, optim="adamw_torch_fused")


def _trainer(
    corpus: Path, steps: int, examples: list[dict[str, list[int]]], *, rows: int, **options: Any
) -> Measured:
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(corpus / "tokenizer.json"),
        pad_token="[PAD]",
        mask_token="[MASK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
    )
    speed = trainer_speed(
        transformers.BertForMaskedLM(_hub_config()),
        examples,
        transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
        lambda batch: int(batch["attention_mask"].sum()),
        warm_up=steps - WINDOW,
        steps=WINDOW,
        per_device_train_batch_size=rows,
        use_cpu=True,
        logging_steps=10,
        **options,
    )
    return {"rate": speed, "losses": []}


def plain_loop(scratch: Path, options: argparse.Namespace) -> Measured:
    import torch
    import transformers
    from torch.nn import functional as F

    blocks = torch.tensor(_blocks(scratch / CORPUS))
    model = transformers.BertForMaskedLM(_hub_config()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    order = torch.randperm(len(blocks))
    rows = BATCH // LENGTH

    def step(number: int) -> tuple[float, int]:
        ids = blocks[order[torch.arange(number * rows, (number + 1) * rows) % len(blocks)]]
        inputs, positions = _mask(ids)
        hidden = model.bert(inputs).last_hidden_state.flatten(0, 1)[positions]
        loss = F.cross_entropy(model.cls(hidden), ids.flatten()[positions])
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return 0.0, rows * LENGTH

    return {**timed_steps(options.steps, options.steps - WINDOW, step), "losses": []}


def _mask(ids: Any) -> tuple[Any, Any]:
    """Return the inputs with masked tokens, and the positions to predict, for a whole batch."""
    import torch

    # [PAD] [UNK] [CLS] [SEP] [MASK] are the first ids
    special = 5
    mask = 4
    vocabulary = 30522
    selected = (torch.rand(ids.shape) < 0.15) & (ids >= special)
    draw = torch.rand(ids.shape)
    inputs = torch.where(selected & (draw < 0.8), mask, ids)
    random_ids = torch.randint(special, vocabulary, ids.shape)
    inputs = torch.where(selected & (draw >= 0.9), random_ids, inputs)
    return inputs, selected.flatten().nonzero()[:, 0]


PEERS: dict[str, Side] = {
    "Trainer, padded documents": trainer_on_documents,
    "Trainer, blocks": trainer_on_blocks,
    "plain loop": plain_loop,
}
SIDES: dict[str, Side] = {"zoo pretrain": ours, **PEERS}


def _hub_config() -> Any:
    import transformers

    return transformers.BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )


def _blocks(corpus: Path) -> list[list[int]]:
    """Return the documents with special tokens, concatenated and cut into rows (run_mlm.py)."""
    from zoo.data.corpus import Corpus

    split = Corpus(corpus).split("train")
    ids = []
    for start, end in itertools.pairwise(split.document_starts().tolist()):
        ids += [CLS, *split.read(start, end).tolist(), SEP]
    return [ids[at : at + LENGTH] for at in range(0, len(ids) - LENGTH + 1, LENGTH)]


def _documents(corpus: Path) -> list[dict[str, list[int]]]:
    """Return the documents with special tokens, truncated to the length of a row."""
    from zoo.data.corpus import Corpus

    split = Corpus(corpus).split("train")
    opened = []
    bounds = split.document_starts().tolist()
    for start, end in itertools.pairwise(bounds):
        for at in range(start, end, LENGTH - 2):
            ids = split.read(at, min(end, at + LENGTH - 2)).tolist()
            opened.append({"input_ids": [CLS, *ids, SEP], "attention_mask": [1] * (len(ids) + 2)})
    return opened


def difference(corpus: Path) -> float:
    """Return the difference between both losses of one batch, with the same weights."""
    import numpy as np
    import torch

    from zoo.conformance.hf_reference import reference_model
    from zoo.objectives.examples.packing import pack
    from zoo.training.config.schema import pretrain_config
    from zoo.training.setup import pretrain_setup

    setup = pretrain_setup(pretrain_config(run_config(corpus, 1), {}))
    objective: Any = setup.objective
    rows = objective.dataset(setup.corpus.split("train"), 0).packed_rows
    torch.manual_seed(0)
    model = objective.model(setup.family, setup.model_config).eval()
    template = objective.vocabulary.single_template
    text = rows.split.read(*rows.plan.row(0)[0])[: LENGTH - 2]
    row = objective.mask_row(
        pack([template.wrap(text)], length=len(text) + 2, pad=0), np.random.default_rng(0)
    )
    batch = objective.collate([row])
    with torch.no_grad():
        output = objective.compute_loss(model, batch.tensors)
        loss = output.sums["masked-lm"] / batch.counts["masked-lm"]
        peer = reference_model(setup.family, setup.model_config, "masked-lm", model.state_dict())
        labels = torch.full_like(batch.tensors["input_ids"], -100)
        labels.view(-1)[batch.tensors["label_positions"]] = batch.tensors["labels"]
        peer_loss = peer(input_ids=batch.tensors["input_ids"], labels=labels).loss
    assert abs(loss - peer_loss) < 1e-4, "the losses differ"
    return float(abs(loss - peer_loss))


if __name__ == "__main__":
    main()

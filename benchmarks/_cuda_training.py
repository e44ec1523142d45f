"""Pretraining in ``benchmarks.cuda``: steps of the zoo and of transformers, and their losses."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks._cuda_cells import Barrier, Cell
from benchmarks._trainer import trainer_speed
from zoo.conformance.hf_reference import reference_model
from zoo.data.cache import SAMPLE
from zoo.objectives.base import Objective
from zoo.training.callbacks.logs import flops_per_token
from zoo.training.config.schema import pretrain_config
from zoo.training.distributed.context import DistContext
from zoo.training.logging.throughput import peak_flops
from zoo.training.loss_module import LossModule
from zoo.training.setup import PretrainSetup, pretrain_setup, train_dataloader
from zoo.training.state.state_dict import unique_state_dict
from zoo.training.trainer import Trainer

TOKENIZER_TOKENS = 4096  # of the tokenizer that is trained on the text; models have their own size
COMPILING = {"cuda": 3, "cpu": 1}  # steps before a process waits for its turn
WARM_UP = {"cuda": 8, "cpu": 2}  # steps that are not timed, with those
STEPS = {"cuda": 40, "cpu": 1}  # steps that are timed
LARGEST_BATCH_GIB = 75  # memory of a device that holds the rows of a step
RTD = "replaced-token-detection"
SPANS = "span-corruption"
OWN_LOOP = "Trainer, modules of transformers"
TINY_LENGTH = 64
TINY_ROWS = 2
Item = dict[str, Tensor]


@dataclass(frozen=True)
class Workload:
    """A model that is pretrained.

    Attributes:
        name: first column of the table.
        family: name of the family.
        size: size of the family.
        objective: name of the objective.
        seq_len: tokens per row.
        rows: rows per step.
        peer: what transformers runs.
        data: the text and its tokenizer, settings of the run; by default the text of the package.
    """

    name: str
    family: str
    size: str
    objective: str
    seq_len: int
    rows: int
    peer: str = "Trainer"
    data: Mapping[str, Any] = field(default_factory=lambda: {"vocab_size": TOKENIZER_TOKENS})


WORKLOADS = (
    Workload("BERT-base, 512", "bert", "base", "masked-lm", 512, 64),
    Workload("BERT-base, 128", "bert", "base", "masked-lm", 128, 256),
    Workload("ELECTRA-small, 128", "electra", "small", RTD, 128, 256, OWN_LOOP),
    Workload("T5-small, 512", "t5", "small", SPANS, 512, 64, OWN_LOOP),
    Workload("GPT-2 small, 1,024", "gpt", "small", "causal-lm", 1024, 32),
)


def workload_of(cell: Cell) -> Workload:
    """Return the workload of a cell: tiny, or with as many rows as the device has memory for."""
    workload = next(workload for workload in WORKLOADS if workload.name == cell.name)
    if cell.tiny:
        data = {"vocab_size": 400, "data": {"paths": [str(SAMPLE / "alice.txt")]}}
        return replace(workload, size="tiny", seq_len=TINY_LENGTH, rows=TINY_ROWS, data=data)
    memory = torch.cuda.get_device_properties(torch.device(cell.device)).total_memory / 2**30
    divisor = next((part for part in (1, 2, 4, 8) if memory * part >= LARGEST_BATCH_GIB), 16)
    return replace(workload, rows=max(1, workload.rows // divisor))


def measure(cell: Cell, barrier: Barrier) -> dict[str, Any]:
    """Measure a side of a workload, or compare the losses of both for a tiny model."""
    if cell.side == "losses":
        return {"difference": loss_difference(workload_of(replace(cell, tiny=True)))}
    device = prepare(cell)
    sides = {"zoo": train_zoo, "transformers": train_peer}
    return sides[cell.side](workload_of(cell), device, barrier)


def prepare(cell: Cell) -> torch.device:
    """Return the device of a cell; both sides multiply float32 in TF32 on CUDA."""
    device = torch.device(cell.device)
    if device.type != "cuda":
        return device
    torch.set_float32_matmul_precision("high")
    return torch.device("cuda", device.index or 0)


def build(workload: Workload, *, compiled: bool, dropout: bool = True) -> PretrainSetup:
    """Return corpus, configuration and objective of a workload, in bfloat16 on CUDA."""
    from zoo.plugins import get_family

    sizes: Any = get_family(workload.family).sizes()[workload.size]
    tiny = workload.size == "tiny"  # which has the vocabulary of the tokenizer
    config: dict[str, Any] = {} if tiny else {"vocab_size": sizes.vocab_size}
    if not dropout:
        config |= {name: 0.0 for name in sizes.__struct_fields__ if name.endswith("dropout")}
    values = {
        "family": workload.family,
        "size": workload.size,
        "objective": workload.objective,
        **workload.data,
        "config": config,
        "seq_len": workload.seq_len,
        "seq_len_warmup": None,
        "global_batch_tokens": workload.seq_len * workload.rows,
        "max_steps": 1000,
        "optimizer": {"name": "adamw", "learning_rate": 1e-4, "weight_decay": 0.01},
        "lr_scheduler": {"name": "linear", "warmup_steps": 10, "min_lr_ratio": 0.0},
        "compile": compiled,
        "report_to": [],
    }
    return pretrain_setup(pretrain_config(values, {}))


def new_model(setup: PretrainSetup) -> nn.Module:
    torch.manual_seed(0)
    return setup.objective.model(setup.family, setup.model_config)


def timed(step: Callable[[int], int], device: torch.device, barrier: Barrier) -> float:
    """Return tokens per second of some steps, after those of the warm-up."""

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    warm_up = WARM_UP[device.type]
    for index in range(warm_up):
        if index == COMPILING[device.type]:
            barrier()
        step(index)
    start = now()
    tokens = sum(step(warm_up + index) for index in range(STEPS[device.type]))
    return tokens / (now() - start)


def train_zoo(workload: Workload, device: torch.device, barrier: Barrier) -> dict[str, Any]:
    """Time steps of the zoo's trainer: batch, forward, backward, clipping, update."""
    setup = build(workload, compiled=device.type == "cuda")
    dist = DistContext(0, 1, device)
    loss_module = LossModule(setup.objective, new_model(setup).to(device))
    trainer = Trainer(loss_module, setup.config, dist, train_dataloader(setup, dist))
    flops = flops_per_token(trainer)

    def step(index: int) -> int:
        batches = trainer.train_dataloader.batches(index)
        trainer.train_step(batches)
        return sum(batch.tokens for batch in batches)

    try:
        speed = timed(step, device, barrier)
    finally:
        trainer.train_dataloader.close()
    peak = peak_flops(device)
    mfu = speed * flops / peak if flops and peak else None
    result = {"tokens_per_second": speed, "rows": workload.rows, "flops_per_token": flops}
    return {**result, "mfu": mfu, **memory(device)}


def memory(device: torch.device) -> dict[str, float | None]:
    """Return the peak memory of this process on the device."""
    used = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return {"memory_gib": None if used is None else used / 2**30}


class GeneratorAndDiscriminator(nn.Module):
    """Both models of replaced-token detection with shared embeddings, of transformers' modules.

    Args:
        generator: the masked language model.
        discriminator: the discriminator.
        weight: weight of its loss.
    """

    def __init__(self, generator: Any, discriminator: Any, weight: float) -> None:
        super().__init__()
        self.generator = generator
        self.discriminator = discriminator
        self.weight = weight
        shared, embeddings = (
            next(module for name, module in model.named_modules() if name.endswith(".embeddings"))
            for model in (generator, discriminator)
        )
        for name, child in list(shared.named_children()):
            if isinstance(child, nn.Embedding | nn.LayerNorm):
                embeddings.add_module(name, child)

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the loss; ``labels`` are -100 where nothing is masked."""
        outputs = self.generator(input_ids=input_ids, labels=labels)
        masked = labels != -100
        logits = outputs.logits.detach()
        noise = -torch.empty_like(logits).exponential_().log()
        samples = (logits + noise).argmax(-1)
        corrupted = torch.where(masked, samples, input_ids)
        replaced = masked & (samples != labels)
        loss = self.discriminator(input_ids=corrupted, labels=replaced.long()).loss
        return {"loss": outputs.loss + self.weight * loss}


def peer_parts(setup: PretrainSetup, model: nn.Module) -> list[Any]:
    """Return transformers' models with the weights of the zoo's, the one that is kept last."""
    trained = setup.objective.models_to_save(model)
    ordered = [trained[name] for name in ("generator", "model") if name in trained]
    parts = []
    for part in ordered:
        state = unique_state_dict(part.module)
        reference: Any = reference_model(setup.family, part.config, part.head, state)
        reference.set_attn_implementation("sdpa")
        parts.append(reference)
    return parts


def peer_model(setup: PretrainSetup, model: nn.Module) -> Any:
    """Return transformers' module whose outputs have the loss."""
    parts = peer_parts(setup, model)
    if len(parts) == 1:
        return parts[0]
    generator, discriminator = parts
    weight = setup.objective.options.discriminator_weight
    return GeneratorAndDiscriminator(generator, discriminator, weight)


def peer_items(setup: PretrainSetup, rows: int) -> list[Item]:
    """Return rows for transformers: blocks of the concatenated documents, without padding."""
    length = setup.config.seq_len
    split = setup.corpus.split("train")
    if hasattr(setup.objective, "source_target_pairs"):
        return [seq2seq_item(setup, index) for index in range(rows)]
    total = int(split.document_starts()[-1])
    starts = range(0, total - length, length)[:rows]
    return [{"input_ids": torch.from_numpy(split.read(at, at + length))} for at in starts]


def seq2seq_item(setup: PretrainSetup, index: int) -> Item:
    """Return source and target of a row of the zoo, one text each."""
    dataset = setup.objective.dataset(setup.corpus.split("train"), seed=0)
    from zoo.data.rng import generator

    row = dataset.example(index, generator(0, index))
    labels = torch.full((len(row.arrays["decoder_input_ids"]),), -100)
    labels[row.positions["label_positions"][1]] = torch.from_numpy(row.values["labels"])
    return {"input_ids": torch.from_numpy(row.arrays["input_ids"]), "labels": labels}


def peer_collator(setup: PretrainSetup) -> Callable[[Sequence[Item]], Item]:
    """Return the collator: dynamic masks of transformers, or next tokens, or plain stacking."""
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    if hasattr(setup.objective, "source_target_pairs"):
        return lambda items: {k: torch.stack([item[k] for item in items]) for k in items[0]}
    special = setup.corpus.record.tokenizer.special
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(setup.corpus.path / "tokenizer.json"),
        **{f"{role}_token": token for role, token in special.items()},
    )
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    collate = DataCollatorForLanguageModeling(tokenizer, mlm="mask" in special)

    def without_mask(items: Sequence[Item]) -> Item:
        batch = collate(items)
        # blocks have no padding, and attention is faster without a mask
        return {"input_ids": batch["input_ids"], "labels": batch["labels"]}

    return without_mask


def count_tokens(item: Mapping[str, Tensor]) -> int:
    """Return the tokens of a batch that are not padding, of the encoder and the decoder."""
    decoder = item["labels"] if item["labels"].shape != item["input_ids"].shape else None
    return item["input_ids"].numel() + (0 if decoder is None else int((decoder != -100).sum()))


def train_peer(workload: Workload, device: torch.device, barrier: Barrier) -> dict[str, Any]:
    """Time steps of transformers: its ``Trainer``, at its best settings for blocks."""
    setup = build(workload, compiled=False)
    model = peer_model(setup, new_model(setup)).train()
    steps = STEPS[device.type]
    count = workload.rows * (WARM_UP[device.type] + steps)
    items = peer_items(setup, count)
    collate = peer_collator(setup)
    cuda = device.type == "cuda"
    speed = trainer_speed(
        model,
        items,
        collate,
        count_tokens,
        warm_up=WARM_UP[device.type],
        steps=steps,
        barrier=(COMPILING[device.type], barrier),
        per_device_train_batch_size=workload.rows,
        bf16=cuda,
        tf32=True if cuda else None,
        optim="adamw_torch_fused",
        torch_compile=cuda,
        use_cpu=not cuda,
        logging_steps=1000,
        remove_unused_columns=False,
        dataloader_drop_last=True,
    )
    return {"tokens_per_second": speed, "peer": workload.peer, **memory(device)}


def single_documents(objective: Objective, setup: PretrainSetup, count: int) -> list[Any]:
    """Return examples of rows with one document each, which transformers can be given, too."""
    from zoo.data.rng import generator

    dataset = objective.dataset(setup.corpus.split("train"), seed=0)
    rows = (dataset.example(index, generator(0, index)) for index in range(len(dataset)))
    alone = (row for row in rows if int(row.arrays["document_ids"].max()) == 1)
    return [row for row, _ in zip(alone, range(count), strict=False)]


def loss_difference(workload: Workload) -> float:
    """Return the difference between both losses of one batch, relative to the loss; float64, CPU.

    The losses of each term are divided by their counts, and added with their weights.
    """
    setup = build(workload, compiled=False, dropout=False)
    objective: Any = setup.objective
    model = new_model(setup).eval().double()  # in float32, a sample of ELECTRA can differ
    batch = objective.collate(single_documents(objective, setup, 4))
    with torch.no_grad():
        sums = objective.compute_loss(model, batch.tensors).sums
        weights = objective.loss_weights
        loss = sum(weights[term] * float(sums[term]) / batch.counts[term] for term in weights)
        parts = [part.eval().double() for part in peer_parts(setup, model)]
        temperature = getattr(objective.options, "temperature", 1.0)
        terms = peer_losses(parts, batch.tensors, temperature)
        assert len(terms) == len(weights), "a term of the loss is not compared"
        peer = sum(weights[term] * value for term, value in zip(weights, terms, strict=True))
    return abs(float(loss) - float(peer)) / abs(float(loss))


def peer_losses(
    parts: Sequence[Any], batch: Mapping[str, Tensor], temperature: float
) -> list[float]:
    """Return the mean loss of each term, of transformers' models, on a batch of the zoo."""
    from zoo.objectives.losses.sampling import sample_from_logits

    ids = batch["input_ids"]
    mask = batch["document_ids"] != 0 if "document_ids" in batch else torch.ones_like(ids) != 0
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    if "decoder_input_ids" in batch:
        inputs["decoder_input_ids"] = batch["decoder_input_ids"]
    positions = batch["label_positions"]
    labels = batch["labels"]
    logits = parts[0](**inputs).logits.flatten(0, 1)[positions]
    losses = [float(F.cross_entropy(logits, labels))]
    if len(parts) > 1:
        samples = sample_from_logits(logits, batch["uniforms"], temperature)
        corrupted = ids.flatten().clone()
        replaced = torch.zeros_like(ids.flatten())
        corrupted[positions] = samples
        replaced[positions] = (samples != labels).long()
        scores = parts[1](input_ids=corrupted.view_as(ids), attention_mask=mask.long()).logits
        real = scores[mask]
        targets = replaced.view_as(ids)[mask].float()
        losses.append(float(F.binary_cross_entropy_with_logits(real, targets)))
    return losses

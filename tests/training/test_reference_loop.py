"""Two steps of training next to a plain loop on the reference library's model, in float64.

The plain loop has the same weights and batches. It runs one document at a time, so it has no packed
rows, and computes the cross-entropy, AdamW and the clipped gradient with torch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.families.every import REPRESENTATIVES
from tests.families.jina_formula import formula, predicted_words
from tests.families.mpnet_streams import two_streams
from tests.training.cases import dry
from tests.training.runs import small
from zoo.conformance.hf_reference import hub_state, keep_float64, reference_model, saved_state
from zoo.families.random_inputs import randomize_weights
from zoo.plugins import all_families, get_family
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.loss_module import LossModule
from zoo.training.setup import PretrainSetup, build_dataset, pretrain_setup
from zoo.training.trainer import Trainer
from zoo_xlnet.objective import hidden_keys

pytestmark = pytest.mark.usefixtures("shared_home")
HERE = DistContext(0, 1, torch.device("cpu"))
ROWS = 4
STEPS = 2
RATE = 1e-3
BETAS = (0.9, 0.95)
EPS = 1e-8
DECAY = 0.1
MAX_NORM = 0.5  # Less than the norm of the first gradients, which are clipped.
SETTINGS: Mapping[str, Any] = {
    "optimizer": {
        "name": "adamw",
        "learning_rate": RATE,
        "betas": list(BETAS),
        "eps": EPS,
        "weight_decay": DECAY,
        "bias_correction": True,
        "max_grad_norm": MAX_NORM,
    },
    "lr_scheduler": {"name": "constant", "warmup_steps": 0, "min_lr_ratio": 0.0},
}
UNCOMPARED = ("elmo", "lstm", "model2vec")  # The reference library has none of them.
GEMMA: Mapping[str, Any] = {
    "num_kv_heads": 1,
    "head_dim": 16,
    "activation": "gelu_pytorch_tanh",
    "sliding_window": 16,
    "sliding_window_pattern": 2,
    "query_pre_attn_scalar": 24,
    "tie_embeddings": True,
}
# Changes of sizes ``tiny`` whose objective the reference library does not have otherwise.
FIRST: Mapping[str, Mapping[str, Any]] = {"deberta": {"enhanced_decoder": False}}
# Family -> changes of its size ``tiny`` that are other architectures.
FURTHER: Mapping[str, list[Mapping[str, Any]]] = {
    "bart": [{"model_type": "mbart"}],
    "jina": [{"model_type": "jina_embeddings_v3"}],
    "llama": [
        {"model_type": "mistral", "sliding_window": 16},
        {"model_type": "qwen2", "use_sliding_window": False},
        {"model_type": "qwen3", "use_sliding_window": False, "head_dim": 20},
        {"model_type": "smollm3", "use_sliding_window": False, "no_rope_layer_interval": 2},
        {"model_type": "olmo2"},
        {"model_type": "gemma2", **GEMMA, "final_logit_softcapping": 20.0},
        {"model_type": "gemma3_text", **GEMMA, "local_rope_theta": 100.0},
    ],
    "opt": [{"model_type": "xglm"}],
    "roberta": [{"model_type": "xlm-roberta-xl"}],
    "t5": [
        {
            "series": "mt5",
            "feed_forward": "gated-gelu",
            "output_table": True,
            "scale_outputs": False,
        },
        {"series": "umt5", "feed_forward": "gated-gelu"},
    ],
    "xlm": [{"model_type": "flaubert"}],
}


def cases() -> Iterator[Any]:
    """Yield families with changes of their configurations; those that run by default unmarked."""
    for family in all_families():
        if family in UNCOMPARED:
            continue
        marks = () if family in REPRESENTATIVES else pytest.mark.long
        yield pytest.param(family, FIRST.get(family, {}), id=family, marks=marks)
        for changes in FURTHER.get(family, []):
            name = next(iter(changes.values()))
            yield pytest.param(family, changes, id=f"{family}-{name}", marks=pytest.mark.long)


def settings_of(family: str, changes: Mapping[str, Any]) -> Any:
    """Return settings of a run by an objective of the plain loop: the recipe's, if it is one."""
    objective = get_family(family).recipe("tiny").objective
    settings = dict(SETTINGS)
    if objective not in PREDICTIONS:  # It adds terms to this one, or draws from a generator.
        has_stacks = "seq2seq-lm" in get_family(family).heads()
        objective = "text-infilling" if has_stacks else "masked-lm"
        settings["objective_args"] = {}
    return dry(small(family, objective=objective, config=changes, **settings))


def documents(numbers: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """Yield the row, the number and the places of each document of a batch, (rows, tokens)."""
    for row in range(len(numbers)):
        for number in range(1, int(numbers[row].max()) + 1):
            yield row, number, torch.nonzero(numbers[row] == number)[:, 0]


def numbers_of(batch: Mapping[str, Tensor], name: str = "document_ids") -> Tensor:
    """Return the number of the document of each token, which a batch of full rows leaves out."""
    return batch[name] if name in batch else torch.ones_like(batch["input_ids"])


def at_labels(batch: Mapping[str, Tensor], like: str, parts: Any) -> Tensor:
    """Put the logits of documents in their places, and return those of the labels."""
    size = next(iter(parts))[2].shape[-1]
    logits = torch.zeros(*batch[like].shape, size, dtype=torch.float64)
    for row, places, values in parts:
        logits[row, places] = values
    return logits.flatten(0, 1)[batch["label_positions"]]


def words(reference: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the logits of an encoder or a decoder."""
    parts = []
    for row, _, places in documents(numbers_of(batch)):
        inputs = {"input_ids": batch["input_ids"][row, places][None]}
        if "token_type_ids" in batch:
            inputs["token_type_ids"] = batch["token_type_ids"][row, places][None]
        parts.append((row, places, reference(**inputs).logits[0]))
    return at_labels(batch, "input_ids", parts)


def words_of_targets(reference: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the logits of an encoder and a decoder."""
    numbers = batch["document_ids"]
    parts = []
    for row, number, places in documents(batch["decoder_document_ids"]):
        output = reference(
            input_ids=batch["input_ids"][row, numbers[row] == number][None],
            decoder_input_ids=batch["decoder_input_ids"][row, places][None],
        )
        parts.append((row, places, output.logits[0]))
    return at_labels(batch, "decoder_input_ids", parts)


def masked_and_permuted_words(reference: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the logits of MPNet, whose labels are in the order of their prediction."""
    parts = []
    for row, _, places in documents(batch["document_ids"]):
        is_label = torch.isin(batch["targets"][row], places)
        count = int((batch["order"][row] > 0).sum())
        slots = torch.nonzero(is_label[:count])[:, 0]
        if len(slots) == 0:
            continue
        hidden = two_streams(
            reference,
            batch["input_ids"][row, places],
            batch["targets"][row, slots] - places[0],
            batch["target_ids"][row, slots],
        )
        parts.append((row, slots, reference.lm_head(hidden)))
    return at_labels(batch, "targets", parts)


class PermutedWords:
    """The logits of XLNet, whose memory goes on from batch to batch."""

    def __init__(self) -> None:
        self.memory: Any = None

    def __call__(self, reference: Any, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the logits of the labels."""
        length = batch["input_ids"].shape[1]
        backbone = reference.transformer
        backbone.bi_data = True  # Half of the rows are read from their end.
        backbone.mem_len = get_family("xlnet").recipe("tiny").objective_args["mem_len"]
        backbone.reuse_len = length // 2
        output = reference(
            batch["input_ids"],
            token_type_ids=batch["token_type_ids"],
            perm_mask=hidden_keys(batch["order"], batch["is_target"]).double(),
            target_mapping=F.one_hot(batch["targets"], length).double(),
            mems=self.memory,
            use_mems=True,
        )
        self.memory = output.mems
        logits: Tensor = output.logits.flatten(0, 1)[batch["label_positions"]]
        return logits


Predict = Callable[[Any, Mapping[str, Tensor]], Tensor]
# Objective -> what makes a function of the reference's model and a batch to the labels' logits.
PREDICTIONS: Mapping[str, Callable[[], Predict]] = {
    "causal-lm": lambda: words,
    "gap-sentences": lambda: words_of_targets,
    "masked-and-permuted-lm": lambda: masked_and_permuted_words,
    "masked-lm": lambda: words,
    "permutation-lm": PermutedWords,
    "span-corruption": lambda: words_of_targets,
    "text-infilling": lambda: words_of_targets,
}


class JinaBert(nn.Module):
    """JinaBERT v2, which the reference library does not have, by its formula."""

    def __init__(self, config: Any, state: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.config = config
        self.names = list(state)
        self.tensors = nn.ParameterList(nn.Parameter(tensor) for tensor in state.values())

    def named_tensors(self) -> dict[str, Tensor]:
        """Return the tensors by their published names."""
        return dict(zip(self.names, self.tensors, strict=True))

    def forward(self, input_ids: Tensor, **_: Any) -> Any:
        """Return the logits of a text."""
        tensors = self.named_tensors()
        hidden = formula(self.config, tensors, input_ids, torch.ones_like(input_ids))
        return SimpleNamespace(logits=predicted_words(self.config, tensors, hidden))


def plain_model(setup: PretrainSetup, model: nn.Module) -> tuple[Any, Callable[[], Any]]:
    """Return a model with copies of the weights, and a function to its tensors by Hub name."""
    family = setup.family
    config = setup.model_config
    head = setup.objective.head
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if family.model_type(config) == "jina_bert":
        rules = family.weights(config, head)
        tied = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
        tensors = hub_state(rules, state)
        formulas = JinaBert(config, {n: t for n, t in tensors.items() if n not in tied})
        return formulas, formulas.named_tensors
    reference: Any = reference_model(family, config, head, state)
    reference.config.use_cache = False
    with torch.device("meta"):
        new_parameters = dict(type(reference)(reference.config).named_parameters())
    for name, parameter in reference.named_parameters():
        parameter.data = parameter.data.clone()
        # Tables of sinusoidal positions are not trained.
        parameter.requires_grad_(name not in new_parameters or new_parameters[name].requires_grad)
    if family.name == "xlnet":  # Its encodings of positions are in float32.
        encode = reference.transformer.relative_positional_encoding
        reference.transformer.relative_positional_encoding = lambda *args, **options: encode(
            *args, **options
        ).double()
    return reference, partial(saved_state, reference)


def plain_loop(
    reference: Any, predict: Predict, batches: Sequence[Mapping[str, Tensor]]
) -> list[float]:
    """Train a model for a step on each batch; return the losses."""
    parameters = [parameter for parameter in reference.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": DECAY},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=EPS)
    losses = []
    for batch in batches:
        with keep_float64():
            loss = F.cross_entropy(predict(reference, batch), batch["labels"])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize(("name", "changes"), list(cases()))
def test_two_steps_equal_a_plain_loop(name: str, changes: Mapping[str, Any]) -> None:
    setup = pretrain_setup(settings_of(name, changes))
    torch.manual_seed(0)
    model = setup.objective.model(setup.family, setup.model_config).double()
    randomize_weights(model)
    reference, tensors = plain_model(setup, model)
    rows = build_dataset(setup, "train", ROWS)
    loader = BatchLoader(
        setup.objective, rows, seed=0, global_batch_size=ROWS, micro_batch_size=ROWS
    )
    trainer = Trainer(LossModule(setup.objective, model), setup.config, HERE, loader)
    losses = []
    batches = []
    for step in range(STEPS):
        (batch,) = loader.make_batches(step)
        with keep_float64():
            record = trainer.train_step([batch])
        assert record["gradient_norm"] > MAX_NORM
        losses.append(trainer.train_metrics.compute_and_reset(trainer.loss_weights)["loss"])
        batches.append(batch.tensors)
    loader.close()
    predict = PREDICTIONS[setup.objective.name]()
    assert plain_loop(reference, predict, batches) == pytest.approx(losses, rel=1e-9)
    expected = tensors()
    trained = hub_state(
        setup.family.weights(setup.model_config, setup.objective.head), model.state_dict()
    )
    compared = trained.keys() & expected.keys()
    assert compared
    for tensor_name in compared:
        difference = (trained[tensor_name] - expected[tensor_name]).abs().max()
        assert difference <= 1e-9, tensor_name

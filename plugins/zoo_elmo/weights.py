"""ELMo's tensors: the names in its HDF5 file and ours.

The LSTMs' kernels keep the order of the file: rows for the input and then for the output before,
columns for the gates i, j, f and o.
"""

from collections.abc import Collection

from zoo.weights import Rule, Transpose, WeightMap
from zoo.weights.encoder_rules import module_rule
from zoo.weights.releases import ReleaseTensor
from zoo_elmo.config import CHARACTERS, ElmoConfig

_CELL = "RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
# what the code that trains calls a thing -> the same in the HDF5 file that it writes in the end
_TRAINED = {
    "/rnn/multi_rnn_cell/cell_": "/RNN/MultiRNNCell/Cell",
    "/lstm_cell/projection/kernel": "/LSTMCell/W_P_0",
    "/lstm_cell/kernel": "/LSTMCell/W_0",
    "/lstm_cell/bias": "/LSTMCell/B",
}


def weights(config: ElmoConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    backbone = WeightMap(
        rules=[*_characters(config), *_lstms(config)], counts={"k": config.highways}
    )
    mixed = backbone.plus(*_mix(config)) if config.mix else backbone
    match head:
        case "none":
            return mixed
        case "sequence-classification" | "token-classification":
            # no published file has such a head
            return mixed.plus(
                module_rule("classifier", "head", len(config.labels), config.hidden_size)
            )
        case "bidirectional-lm":
            words = config.vocab_size
            return backbone.plus(
                Rule("softmax/W", "head.weight", (words, config.projection_size)),
                Rule("softmax/b", "head.bias", (words,)),
            )
    raise ValueError(f"ELMo has no head {head!r}")


def _characters(config: ElmoConfig) -> list[Rule]:
    size = config.character_size
    total = config.filter_count
    # the file has no row for the id 0
    rules = [Rule("char_embed", "embeddings.characters.weight", (CHARACTERS - 1, size))]
    for n, (width, count) in enumerate(config.filters):
        rules += _flipped(f"CNN/{{}}_cnn_{n}", f"embeddings.filters.{n}", (count, size, width, 1))
    for part in ("carry", "transform"):
        target = f"embeddings.highways.{{k}}.{part}"
        rules += _flipped("CNN_high_{k}/{}_" + part, target, (total, total))
    if total != config.projection_size:
        rules += _flipped(
            "CNN_proj/{}_proj", "embeddings.projection", (config.projection_size, total)
        )
    return rules


def _flipped(source: str, target: str, shape: tuple[int, ...]) -> list[Rule]:
    return [
        Rule(source.replace("{}", "W"), f"{target}.weight", shape, Transpose()),
        Rule(source.replace("{}", "b"), f"{target}.bias", shape[:1]),
    ]


def _lstms(config: ElmoConfig) -> list[Rule]:
    size = config.lstm_size
    outputs = config.projection_size
    rules = []
    for layer in range(config.lstm_layers):
        for way, name in enumerate(("left_to_right", "right_to_left")):
            cell = _CELL.format(way=way, layer=layer)
            target = f"layers.{layer}.{name}"
            rules.append(Rule(f"{cell}/W_0", f"{target}.kernel", (2 * outputs, 4 * size)))
            rules.append(Rule(f"{cell}/B", f"{target}.bias", (4 * size,)))
            if outputs < size:
                rules.append(Rule(f"{cell}/W_P_0", f"{target}.projection", (size, outputs)))
    return rules


def _mix(config: ElmoConfig) -> list[Rule]:
    """The mix is learned with a task, and published files have none: then it is the mean."""
    mix = f"layers.{config.lstm_layers}"
    return [
        Rule("ELMo_W", f"{mix}.weights", (config.lstm_layers + 1,), optional="mix"),
        Rule("ELMo_gamma", f"{mix}.gamma", (1,), optional="mix"),
    ]


def from_tensorflow(names: Collection[str], head: str) -> dict[str, ReleaseTensor]:
    """Return name -> tensor for checkpoints of the training code (training.py, dump_weights)."""
    return {name: _trained(name) for name in names}


def _trained(name: str) -> ReleaseTensor:
    if name.endswith("/Adagrad"):
        return ReleaseTensor(name, reason="a slot of the optimizer, not a weight")
    if name in ("global_step", "train_perplexity"):
        return ReleaseTensor(name, reason="a statistic of training, not a weight")
    dumped_name = name.removeprefix("lm/")
    for trained, dumped in _TRAINED.items():
        dumped_name = dumped_name.replace(trained, dumped)
    return ReleaseTensor(dumped_name)

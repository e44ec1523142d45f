"""Comparison of weight rules with the model whose tensors they fill."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

if TYPE_CHECKING:
    from zoo.families.base import Family


def differing_tensors(family: "Family", config: Any, head: str) -> list[str]:
    """Return the names of tensors whose shapes in rules and model differ, or that one lacks."""
    # The model is built without memory for its weights
    from zoo.nn.layers.skip_init import init_empty_weights

    with init_empty_weights():
        state_dict = family.model(config, head).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state_dict.items()}
    ruled = {mapping.target: mapping.shape for mapping in family.weights(config, head).entries()}
    return sorted(name for name in {*ruled, *shapes} if ruled.get(name) != shapes.get(name))


def repeated_targets(family: "Family", config: Any, head: str) -> list[str]:
    """Return the names of the tensors that several rules fill."""
    targets = Counter(mapping.target for mapping in family.weights(config, head).entries())
    return [name for name, count in targets.items() if count > 1]


def untied_tables(family: "Family", config: Any, head: str) -> list[str]:
    """Return the tables of tokens of a model that should share one, by its ``config.json``.

    A model with ``tie_word_embeddings`` scores tokens by its input embeddings. If the rules fill a
    second table of the same shape, training makes two different ones of them, and the Hub's class
    reads only one.
    """
    axes_of_outputs = family.heads()[head].outputs.values()
    scores_tokens = any("vocab_size" in axes.split() for axes in axes_of_outputs)
    if not scores_tokens or family.to_hub(config).get("tie_word_embeddings") is not True:
        return []
    # A table of tokens is a matrix that grows with the vocabulary. Other tables, such as positions,
    # may happen to have as many rows.
    larger = replace(config, vocab_size=config.vocab_size + 1)
    larger_shapes = {entry.target: entry.shape for entry in family.weights(larger, head).entries()}
    tables: dict[tuple[int, ...], list[str]] = {}
    for entry in family.weights(config, head).entries():
        if len(entry.shape) == 2 and larger_shapes.get(entry.target) != entry.shape:
            tables.setdefault(tuple(sorted(entry.shape)), []).append(entry.target)
    for names in tables.values():
        if len(names) > 1:
            return names
    return []


def ties_message(names: Sequence[str]) -> str:
    """Return the message for the result of ``untied_tables``."""
    return (
        f"tie_word_embeddings is true, and the rules fill {' and '.join(names)}: declare a "
        "`TiedAlias` for the output embeddings, and give the model one parameter"
    )


def check_rules_of_plugin(family: "Family", config: Any, head: str) -> None:
    """Check that the rules of a third party's family fill exactly its model."""
    # Otherwise the files that a conversion writes could not be loaded. The tests check it for
    # built-in families.
    from zoo.plugins.attribution import third_party
    from zoo.plugins.loading import broken

    plugin = third_party(family)
    if plugin is None:
        return
    rules = f"the rules of {family.name} with head {head}"
    repeated_names = repeated_targets(family, config, head)
    if repeated_names:
        raise broken(plugin, f"two of {rules} fill {repeated_names[0]}")
    differing_names = differing_tensors(family, config, head)
    if differing_names:
        raise broken(plugin, f"{rules} and its model differ in {', '.join(differing_names[:6])}")
    untied_names = untied_tables(family, config, head)
    if untied_names:
        raise broken(plugin, f"{rules}: {ties_message(untied_names)}")

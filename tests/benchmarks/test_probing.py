"""The table of probes has a row for each model, whatever its layers."""

from typing import Any

from benchmarks.probing import largest_deviation, layer_table


def layer(number: int | None, name: str, accuracy: float, selectivity: float) -> dict[str, Any]:
    value: dict[str, Any] = {"layer": number, "name": name}
    for metric, mean in (("accuracy", accuracy), ("selectivity", selectivity)):
        value[metric] = {"mean": mean, "deviation": mean / 100, "seeds": [mean]}
    return value


def test_models_with_different_layers_share_a_table() -> None:
    deep = [layer(0, "embeddings", 0.5, 0.25), layer(1, "layer 1", 0.75, 0.125)]
    deep += [layer(2, "layer 2", 0.625, 0.375), layer(None, "learned mix", 0.875, 0.0)]
    mixed = [layer(0, "embeddings", 0.5, 0.0), layer(1, "model's mix", 0.25, 0.125)]
    results = {"deep": deep, "mixed": mixed}
    header, _, *rows = layer_table(results).splitlines()
    assert header == "| model | 0 | 1 | 2 | own mix | learned mix | best layer |"
    assert rows == [
        "| deep | 0.500 (0.250) | 0.750 (0.125) | 0.625 (0.375) |  | 0.875 (0.000) | 1 (2) |",
        "| mixed | 0.500 (0.000) |  |  | 0.250 (0.125) |  | 0 (0) |",
    ]
    assert largest_deviation(results) == 0.00875

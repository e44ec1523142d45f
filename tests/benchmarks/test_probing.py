"""The table of probes has a row for each model, whatever its layers."""

import json
from pathlib import Path
from typing import Any

from benchmarks.probing import curves_json, largest_deviation, layer_table

ROOT = Path(__file__).parents[2]


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
    assert largest_deviation(results, "accuracy") == 0.00875
    assert largest_deviation(results, "selectivity") == 0.00375


def test_curves_have_the_ranges_of_the_seeds() -> None:
    first = layer(0, "embeddings", 0.5, 0.25)
    first["accuracy"]["seeds"] = [0.52, 0.48, 0.5]
    curves = json.loads(curves_json({"model": [first, layer(None, "learned mix", 0.9, 0.1)]}))
    assert curves == {
        "accuracy": {"model": [[0, 0.5, 0.48, 0.52]]},
        "selectivity": {"model": [[0, 0.25, 0.25, 0.25]]},
    }


def test_the_picture_of_the_guide_has_the_values_of_its_table() -> None:
    curves = json.loads((ROOT / "benchmarks" / "probing_curves.json").read_text("utf-8"))
    page = (ROOT / "docs" / "guides" / "probing.md").read_text("utf-8")
    first_table = page.partition("\n| model |")[2].partition("\n\n")[0]
    rows = {}
    for line in first_table.splitlines()[2:]:
        model, *cells = (cell.strip() for cell in line.strip("| ").split("|"))
        rows[model] = cells
    assert curves["accuracy"].keys() == curves["selectivity"].keys() <= rows.keys()
    for model, cells in rows.items():
        if model not in curves["accuracy"]:
            continue
        accuracies = curves["accuracy"][model]
        selectivities = curves["selectivity"][model]
        for (number, accuracy, *_), (_, selectivity, *_) in zip(
            accuracies, selectivities, strict=True
        ):
            in_table = [float(value) for value in cells[number].strip(")").split(" (")]
            assert abs(in_table[0] - accuracy) < 0.0006, f"{model}, layer {number}"
            assert abs(in_table[1] - selectivity) < 0.0006, f"{model}, layer {number}"

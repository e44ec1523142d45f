"""The result of probing: tables, JSON, and curves by layer as a picture and a page."""

import base64
from dataclasses import asdict, dataclass
from typing import Any

from zoo.probing.probing import LayerResult, ModelResult, ProbeData
from zoo.probing.settings import Measurements, Pooling, ProbeRecipe
from zoo.probing.tasks.base import ProbeTask
from zoo.report import html
from zoo.report.figures import Band, draw_bands


@dataclass(frozen=True)
class Column:
    """How tables show a metric."""

    heading: str
    digits: int = 4  # After the point.
    divisor: int = 1


COLUMNS = {
    "accuracy": Column("accuracy"),
    "f1_macro": Column("F1 macro"),
    "loss": Column("loss (bits)", 3),
    "control_accuracy": Column("control accuracy"),
    "selectivity": Column("selectivity"),
    "codelength": Column("codelength (kbit)", 2, 1000),
    "compression": Column("compression", 2),
    "control_codelength": Column("control codelength (kbit)", 2, 1000),
    "control_compression": Column("control compression", 2),
}
DRAWN_METRICS = ("accuracy", "selectivity", "compression")
# Columns that narrow terminals have no room for, the first ones first; --json has all.
DROPPED_COLUMNS = ("control_codelength", "control_compression", "f1_macro", "loss")


@dataclass(frozen=True)
class Probing:
    """The scores of probes by layer, of one model or several.

    Attributes:
        task: name of the task.
        models: the scores of each model.
        labels: the classes.
        majority_accuracy: accuracy of always predicting the most frequent label of the training
            data.
        texts: number of texts to train on, held out of them, and to evaluate.
        examples: number of labels in each of the three.
        pooling: how the vectors of tokens become one.
        recipe: the kind of the probes, and their training.
        seeds: number of probes of each layer.
        control: what has a random label in the control task; empty without one.
    """

    task: str
    models: list[ModelResult]
    labels: tuple[str, ...]
    majority_accuracy: float
    texts: dict[str, int]
    examples: dict[str, int]
    pooling: Pooling
    recipe: ProbeRecipe
    seeds: int
    control: str = ""

    @classmethod
    def from_models(
        cls,
        task: ProbeTask,
        data: ProbeData,
        pooling: Pooling,
        recipe: ProbeRecipe,
        measurements: Measurements,
        seeds: int,
        models: list[ModelResult],
    ) -> "Probing":
        """Return the result for some models."""
        texts = {}
        examples = {}
        for name, part in (
            ("train", data.train),
            ("validation", data.validation),
            ("evaluation", data.evaluation),
        ):
            texts[name] = len(part)
            examples[name] = sum(len(text.examples) for text in part)
        return cls(
            task.name,
            models,
            data.labels,
            data.majority_accuracy(),
            texts,
            examples,
            pooling,
            recipe,
            seeds,
            task.control if measurements.control else "",
        )

    def to_json(self) -> dict[str, Any]:
        """Return all values, as ``zoo probe --json`` prints them."""
        return {
            "task": self.task,
            "labels": list(self.labels),
            "majority_accuracy": self.majority_accuracy,
            "texts": self.texts,
            "examples": self.examples,
            "pooling": self.pooling,
            "seeds": self.seeds,
            "control": self.control,
            **asdict(self.recipe),
            "models": [model.to_json() for model in self.models],
        }

    def to_html(self) -> str:
        """Return a page with the curves and the tables, which needs no network."""
        return render(self)

    def _repr_html_(self) -> str:
        """Return the page in a frame, for notebooks."""
        from zoo.report.cells import page_cell

        return page_cell(f"probing {', '.join(self.model_names)}", self.to_html())

    @property
    def model_names(self) -> list[str]:
        """A name for each model: its reference, with a number if several models have it."""
        names: list[str] = []
        for model in self.models:
            name = model.model
            number = 2
            while name in names:
                name = f"{model.model} ({number})"
                number += 1
            names.append(name)
        return names

    @property
    def metrics(self) -> list[str]:
        """The metrics that were measured, in the order of the columns of tables."""
        measured = self.models[0].layers[0].values
        return [metric for metric in COLUMNS if metric in measured]

    @property
    def dropped_columns(self) -> list[str]:
        """Headings that narrow terminals have no room for."""
        return [COLUMNS[metric].heading for metric in DROPPED_COLUMNS if metric in self.metrics]

    @property
    def header(self) -> list[str]:
        """Headings of a table of a model."""
        return ["layer", *(COLUMNS[metric].heading for metric in self.metrics)]

    def rows(self, model: ModelResult) -> list[list[str]]:
        """Return the table of a model: a row for each layer."""
        rows = []
        for layer in model.layers:
            cells = [layer.name]
            for metric in self.metrics:
                cells.append(self._cell(layer, metric))
            rows.append(cells)
        return rows

    def _cell(self, layer: LayerResult, metric: str) -> str:
        """Return the mean of a metric, with the standard deviation over several seeds."""
        column = COLUMNS[metric]
        text = f"{layer.mean(metric) / column.divisor:.{column.digits}f}"
        if self.seeds > 1:
            text += f" ± {layer.deviation(metric) / column.divisor:.{column.digits}f}"
        return text

    def facts(self) -> list[str]:
        """Return lines that describe the data and the probes."""
        seeds = f", mean ± standard deviation of {self.seeds} seeds" if self.seeds > 1 else ""
        counts = ", ".join(
            f"{self.examples[name]:,} {verb}"
            for name, verb in (
                ("train", "to train on"),
                ("validation", "held out"),
                ("evaluation", "to evaluate"),
            )
        )
        lines = [
            f"{self.task}, {self.recipe.probe} probes, {self.pooling} pooling{seeds}",
            f"{len(self.labels):,} labels; {counts}; majority {self.majority_accuracy:.4f}",
        ]
        if self.control:
            lines.append(f"control task: {self.control}")
        return lines


def draw(probing: Probing) -> str:
    """Return the curves of all models as SVG: a panel for each metric, with the range of seeds."""
    panels: dict[str, dict[str, Band]] = {}
    for metric in DRAWN_METRICS:
        if metric not in probing.metrics:
            continue
        curves: dict[str, Band] = {}
        for name, model in zip(probing.model_names, probing.models, strict=True):
            curve = []
            for layer in model.layers:
                values = layer.values[metric]
                ends = (min(values), max(values))
                if layer.layer is not None:
                    curve.append((float(layer.layer), layer.mean(metric), *ends))
                    continue
                # The mix of all layers is a line along them.
                mean = layer.mean(metric)
                places = [point[0] for point in curve]
                curves[f"{name}, {layer.name}"] = [(place, mean, mean, mean) for place in places]
            curves[name] = curve
        panels[COLUMNS[metric].heading] = dict(sorted(curves.items()))
    return draw_bands(panels, x="layer")


def render(probing: Probing) -> str:
    """Return the page, which needs no network."""
    figure = base64.b64encode(draw(probing).encode()).decode()
    tables = []
    for name, model in zip(probing.model_names, probing.models, strict=True):
        rows = probing.rows(model)
        best = max(range(len(rows)), key=lambda row: model.layers[row].mean("accuracy"))
        shares = []
        for layer in model.layers:
            if layer.shares:
                shares = [f"{share:.3f}" for share in layer.shares]
        tables.append((name, rows, best, ", ".join(shares)))
    return html.render(
        "probe.html",
        title=f"Probing {', '.join(probing.model_names)}",
        facts=probing.facts(),
        figure=f"data:image/svg+xml;base64,{figure}",
        header=probing.header,
        tables=tables,
        labels=", ".join(probing.labels),
    )

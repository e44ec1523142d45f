"""The page and the picture of probing: ``zoo probe -o FILE``."""

import base64
from pathlib import Path

from zoo.errors import UsageError
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import writing
from zoo.probing.report import COLUMNS, Probing
from zoo.report import html
from zoo.report.figures import Band, draw_bands

PAGES = (".html", ".htm")
PICTURES = (".svg", ".png")
DRAWN_METRICS = ("accuracy", "selectivity", "compression")


def check_output(path: Path) -> None:
    """Check the name of a file before anything is computed.

    Raises:
        UsageError: it has another format, or the package that writes PNG is missing.
    """
    suffix = path.suffix.lower()
    if suffix not in (*PAGES, *PICTURES):
        raise UsageError(
            f"{path}: probing is written as a page or a picture",
            "end the name in .html, .svg or .png",
        )
    if suffix == ".png":
        from zoo.report.png import require_png

        require_png()


def write_output(probing: Probing, path: Path) -> None:
    """Write a page or a picture, by the ending of the file's name."""
    suffix = path.suffix.lower()
    if suffix in PAGES:
        content = render(probing).encode()
    else:
        figure = draw(probing)
        content = figure.encode()
        if suffix == ".png":
            from zoo.report.png import rasterize

            content = rasterize(figure)
    with writing(path):
        atomic_write(path, content)


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

"""Registry of metrics: their declarations, and the metrics that users select by name.

A built-in metric is a line in ``METRICS`` of ``zoo.metrics``. A plugin's is an entry point of
``zoo.api1.metrics`` that names a ``MetricSpec``.
"""

import dataclasses
import functools
import importlib
import typing
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from zoo.errors import UsageError, did_you_mean
from zoo.metrics import METRICS, Metric, MetricInput, MetricSpec
from zoo.plugins.entry_point_objects import (
    broken_name,
    broken_object,
    find_object,
    import_instance,
    is_named,
    usable,
)

if TYPE_CHECKING:
    from zoo.plugins.entry_point_objects import NamedObject

KIND = "metrics"


@functools.cache
def built_in_metrics() -> dict[str, MetricSpec]:
    """Return name -> declaration of the metrics that zoo brings."""
    return {spec.name: spec for spec in METRICS}


def plugin_metric(plugin_object: "NamedObject") -> MetricSpec:
    """Return the declaration of a plugin's metric; imports the plugin."""
    spec = import_instance(plugin_object, MetricSpec)
    if spec.name != plugin_object.name:
        raise broken_name(plugin_object, spec.name)
    if spec.metric and not issubclass(metric_class(spec), Metric):
        raise broken_object(plugin_object, f"{spec.metric} is not a subclass of Metric")
    return spec


def find_metric(name: str) -> MetricSpec | None:
    """Return the declaration of a metric, of zoo or of a plugin; ``None`` if there is none."""
    spec = built_in_metrics().get(name)
    if spec is not None:
        if is_named(KIND, name):
            usable(KIND, built_in_metrics())  # This warns.
        return spec
    if not is_named(KIND, name):
        return None
    return plugin_metric(find_object(KIND, name, built_in_metrics()))


def greater_is_better(name: str) -> bool:
    """Return whether a higher value of a metric is better, as it is of metrics not declared."""
    spec = find_metric(name)
    return spec is None or spec.greater_is_better


def metric_class(spec: MetricSpec) -> type[Metric]:
    """Import the class that computes a metric that users select."""
    if not isinstance(spec.metric, str):
        return spec.metric
    module, _, attribute = spec.metric.partition(":")
    imported: type[Metric] = getattr(importlib.import_module(module), attribute)
    return imported


def selectable_metrics(metric_input: MetricInput | None) -> list[str]:
    """Return the names of metrics that users select where tasks predict what they read."""
    names: list[str] = []
    if metric_input is None:
        return names
    for name in (*built_in_metrics(), *usable(KIND, built_in_metrics())):
        spec = find_metric(name)
        if spec is not None and spec.metric and metric_input in spec.computed_from:
            names.append(name)
    return names


def select_metrics(
    requests: Iterable[str], metric_input: MetricInput | None, task: str
) -> Mapping[str, Metric]:
    """Return name -> metric for requests such as ``bleu`` or ``bleu:lowercase=true``.

    Args:
        requests: a name, or a name with settings, for each metric.
        metric_input: what the task predicts; ``None`` if no metric can be selected.
        task: name of the task, for messages.

    Raises:
        UsageError: there is no such metric for this task, or it does not have these settings.
    """
    metrics: dict[str, Metric] = {}
    for request in requests:
        name, _, text = request.partition(":")
        spec = find_metric(name)
        if spec is not None and not spec.metric:
            raise UsageError(
                f"{name} is not selected: the tasks that have it always report it", "leave it out"
            )
        if spec is None or metric_input not in spec.computed_from:
            names = selectable_metrics(metric_input)
            hint = "leave it out"
            if names:
                hint = did_you_mean(name, names) or f"there are {', '.join(names)}"
            raise UsageError(f"{task} has no metric {name!r} to select", hint)
        if name in metrics:
            raise UsageError(f"the metric {name} is selected twice", "select it once")
        metrics[name] = _configure(name, metric_class(spec), _settings(name, text))
    return metrics


def _settings(name: str, text: str) -> dict[str, str]:
    """Return the settings of ``SETTING=VALUE,...``."""
    settings = {}
    for assignment in filter(None, text.split(",")):
        key, equals, value = assignment.partition("=")
        if not equals:
            raise UsageError(
                f"the metric {name} has settings {text!r}", f"write them as {name}:SETTING=VALUE"
            )
        settings[key.strip()] = value.strip()
    return settings


def _configure(name: str, metric_type: type[Metric], settings: Mapping[str, Any]) -> Metric:
    """Return a metric with settings."""
    names = [field.name for field in dataclasses.fields(metric_type)]
    for key in settings:
        if key not in names:
            hint = "it has none"
            if names:
                hint = did_you_mean(key, names) or f"it has {', '.join(names)}"
            raise UsageError(f"the metric {name} has no setting {key!r}", hint)
    types = typing.get_type_hints(metric_type)
    for key, value in settings.items():
        choices = typing.get_args(types[key])
        if typing.get_origin(types[key]) is Literal and value not in choices:
            hint = did_you_mean(value, choices) or f"it may be {', '.join(choices)}"
            raise UsageError(f"the metric {name}: {key} is {value!r}", hint)
    try:
        return msgspec.convert(dict(settings), metric_type, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"the metric {name}: {error}") from error

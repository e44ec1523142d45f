"""Registry of suites: benchmarks of several tasks, which are imported when they are used.

A built-in suite is a line in ``BUILT_IN``. A plugin's is an entry point of ``zoo.api1.suites`` that
names a ``Suite``.
"""

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.io.lazy_import import lazy_import
from zoo.plugins.entry_point_objects import (
    broken_name,
    find_object,
    import_instance,
    is_named,
    usable,
)

if TYPE_CHECKING:
    from zoo.plugins.entry_point_objects import NamedObject

KIND = "suites"
SUITE_TYPE = "zoo.suites.base:Suite"


class BuiltInSuite(NamedTuple):
    """A suite that zoo brings."""

    target: str  # ``module:attribute`` of the ``Suite``.
    summary: str  # One line for help, which imports no suite.
    is_finetuned: bool = False  # Whether a model is trained for each task.


BUILT_IN = {
    "glue": BuiltInSuite(
        "zoo.suites.glue:SUITE", "Nine tasks on sentences and pairs; a model for each.", True
    ),
    "superglue": BuiltInSuite(
        "zoo.suites.superglue:SUITE", "Eight harder tasks; a model for each.", True
    ),
    "sts": BuiltInSuite("zoo.suites.sts:SUITE", "Similarity of pairs: STS12 to 16, STS-B, SICK-R."),
    "beir-small": BuiltInSuite("zoo.suites.beir:SUITE", "Retrieval in six corpora of BEIR."),
    "senteval": BuiltInSuite(
        "zoo.suites.senteval:SUITE", "Seven tasks; classifiers of frozen embeddings."
    ),
    "senteval-probing": BuiltInSuite(
        "zoo.suites.senteval:PROBING_SUITE", "Ten properties of sentences, in the same way."
    ),
    "cola-probing": BuiltInSuite(
        "zoo.suites.cola_probing:SUITE", "Acceptability, by a classifier of frozen embeddings."
    ),
    "mteb": BuiltInSuite("zoo.contrib.mteb_suite:SUITE", "Tasks of MTEB, by the package mteb."),
}


def suite_names() -> list[str]:
    """Return the names of all suites, those of zoo first; imports none."""
    return [*BUILT_IN, *usable(KIND, BUILT_IN)]


def find_suite(name: str) -> Any:
    """Return the suite of a name, of zoo or of a plugin.

    Raises:
        UsageError: there is none; the message has the nearest name.
        PluginError: a plugin's suite cannot be imported, or is not one.
    """
    if name in BUILT_IN:
        if is_named(KIND, name):
            usable(KIND, BUILT_IN)  # This warns.
        return lazy_import({name: BUILT_IN[name].target}, name, "suite")
    return plugin_suite(find_object(KIND, name, BUILT_IN))


def plugin_suite(plugin_object: "NamedObject") -> Any:
    """Return the suite of a plugin; imports the plugin."""
    module, _, attribute = SUITE_TYPE.partition(":")
    suite_type: type[Any] = getattr(importlib.import_module(module), attribute)
    suite = import_instance(plugin_object, suite_type)
    if suite.name != plugin_object.name:
        raise broken_name(plugin_object, suite.name)
    return suite

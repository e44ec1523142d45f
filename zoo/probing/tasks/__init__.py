"""Tasks of probing, one a module: what is labelled, and by which vectors.

A task is a subclass of ``zoo.probing.tasks.base.ProbeTask`` and a line in ``BUILT_IN``; a plugin's
is an entry point of ``zoo.api1.probes``.
"""

from typing import TYPE_CHECKING

from zoo.plugins.catalog import Catalog

if TYPE_CHECKING:
    from zoo.probing.tasks.base import ProbeTask

MODULE = "zoo.probing.tasks"
# Name of a task -> its class, imported when it is used.
BUILT_IN = {
    "text-classification": f"{MODULE}.texts:TextProbe",
    "token-classification": f"{MODULE}.words:WordProbe",
    "edge": f"{MODULE}.edges:EdgeProbe",
}
PROBE_TASKS: "Catalog[ProbeTask]" = Catalog("probes", f"{MODULE}.base:ProbeTask", BUILT_IN)

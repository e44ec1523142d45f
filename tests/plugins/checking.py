"""The checks of a plugin in a process that has imported torch, which take most of their time."""

import json
from collections.abc import Sequence

from zoo.conformance.plugin_checks import findings


def main(arguments: Sequence[str]) -> None:
    """Print what the quick checks of the plugin of this name find, as a list of texts."""
    (name,) = arguments
    problems = [finding.text for finding in findings(name, full=False) if not finding.skipped]
    print(json.dumps(problems))

"""torch's ONNX exporter without the tables that it builds again for each graph.

It parses the source of 500 functions of onnxscript and collects all decompositions, which takes a
third of the time of a small graph. The tests export hundreds.
"""

import sys
from functools import cache
from typing import Any

EXPORTER = "torch.onnx._internal.exporter._core"


@cache
def keep_tables() -> None:
    """Keep the tables in this process once they are made; each export gets copies."""
    exporter: Any = sys.modules[EXPORTER]
    kind: Any = exporter._registration.ONNXRegistry
    decompositions: Any = exporter._fx_passes._decomp
    operators = cache(kind.from_torchlib)
    table = cache(decompositions.create_onnx_friendly_decomposition_table)

    def from_torchlib(**options: Any) -> Any:
        kept, copy = operators(**options), kind()
        vars(copy).update(vars(kept))
        copy.functions = {name: [*found] for name, found in kept.functions.items()}
        return copy

    kind.from_torchlib = staticmethod(from_torchlib)
    decompositions.create_onnx_friendly_decomposition_table = lambda known: {
        **table(frozenset(known))
    }


def fill_tables(opset: int) -> None:
    """Make the tables of an opset, so that forks of this process have them."""
    keep_tables()
    exporter: Any = sys.modules[EXPORTER]
    registry = exporter._registration.ONNXRegistry.from_torchlib(opset_version=opset)
    decompositions = exporter._fx_passes._decomp
    operators = set(decompositions.get_onnx_implemented_overloads(registry))
    decompositions.create_onnx_friendly_decomposition_table(operators)

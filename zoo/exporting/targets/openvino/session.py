"""Session over OpenVINO, on the CPU."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openvino

from zoo.checkpoint import Checkpoint
from zoo.errors import VerificationError
from zoo.exporting.targets.openvino.write import MODEL, read_model
from zoo.exporting.targets.session import TargetSession
from zoo.inference.threads import environment_threads
from zoo.overrides import override

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Its default is bfloat16 on CPUs that have it, which differs by 1e-3
EXACT = {"INFERENCE_PRECISION_HINT": "f32"}
# Numbers of an activation that share a scale next to 8-bit weights; by default 32. In MiniLM, the
# lowest cosine of 256 sentences is 0.994 instead of 0.997, and throughput 1.2 times as high; with
# all 384 numbers in one group it is 0.991 at the same speed.
GROUP_SIZE = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 128}


class OpenVinoSession(TargetSession):
    """IR files in OpenVINO."""

    def __init__(
        self, checkpoint: Checkpoint, folder: Path, precision: str, threads: int | None = None
    ) -> None:
        super().__init__(checkpoint, "openvino", precision)
        settings: dict[str, Any] = {**EXACT, "PERFORMANCE_HINT": "LATENCY"}
        if precision == "int8":
            settings |= GROUP_SIZE
        num_threads = threads or environment_threads()
        if num_threads:
            settings["INFERENCE_NUM_THREADS"] = num_threads
        model = read_model(folder / MODEL)
        input_names = _port_names(model.inputs)
        output_names = _port_names(model.outputs)
        if not input_names <= set(self.inputs) or not set(self.outputs) <= output_names:
            raise VerificationError(
                f"{folder / MODEL} takes {', '.join(sorted(input_names))} and returns "
                f"{', '.join(sorted(output_names))}, where the model takes "
                f"{', '.join(self.inputs)} "
                f"and returns {', '.join(self.outputs)}",
                "export it again",
            )
        self._input_names = sorted(input_names)
        self._file = folder / MODEL
        try:
            self._compiled = openvino.Core().compile_model(model, "CPU", settings)
        except RuntimeError as error:
            raise self._failure(error) from error
        self._request = self._compiled.create_infer_request()

    def _failure(self, error: RuntimeError) -> VerificationError:
        line = " ".join(str(error).split())
        return VerificationError(f"{self._file}: OpenVINO fails: {line:.300}", "export it again")

    @override
    def compute(
        self, arrays: "Mapping[str, NDArray[np.int64]]", names: Sequence[str]
    ) -> "Mapping[str, NDArray[Any]]":
        try:
            inputs = {name: arrays[name] for name in self._input_names}
            self._request.infer(inputs, share_inputs=True, share_outputs=True)
        except RuntimeError as error:
            raise self._failure(error) from error
        # A tensor is overwritten by the next run.
        return {name: self._request.get_tensor(name).data.copy() for name in names}


def _port_names(ports: Sequence[Any]) -> set[str]:
    """Return the names of inputs or outputs, of which each may have several."""
    names: set[str] = set()
    for port in ports:
        names |= port.names
    return names

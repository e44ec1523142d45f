"""Session over torch, on CPU or CUDA."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError
from zoo.inference.concurrency import MAX_CONCURRENT_BATCHES
from zoo.inference.load_model import load_model, stored_dtype
from zoo.inference.memory import keep_freed_memory
from zoo.inference.nan_weights import require_no_nan
from zoo.inference.session import INT8, Session
from zoo.inference.validate_inputs import check_inputs, check_outputs
from zoo.nn.adapters.prompt import prompt_of
from zoo.nn.capture import capture, hidden_state_count
from zoo.nn.devices import resolve_device, resolve_dtype
from zoo.nn.dtypes import at_least_float32
from zoo.nn.encoder import packs_in_one_row
from zoo.nn.kernels.int8_linear import int8_problem, quantize_linear_maps
from zoo.nn.kernels.onednn_linear import is_faster, use_onednn
from zoo.nn.kernels.row_packing import packing_in_inference
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.inference.generation.decoder import SessionDecoder
    from zoo.inference.session import Arrays, Floats

__all__ = ["TorchSession", "load_model"]

# Of a token of padding in packed rows, relative to another token: it is copied and pooled.
PACKED_PADDING_COST = 0.1


class TorchSession(Session):
    """A model in torch."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        backend: str = "auto",
        device: str | None = None,
        dtype: str | None = None,
        threads: int | None = None,
    ) -> None:
        self._device = resolve_device(backend, device)
        if dtype == INT8:
            # 8-bit weights need a CPU and its kernels.
            if self._device.type != "cpu":
                raise UsageError(f"{INT8} runs on CPUs, not on {self._device}", "use --backend cpu")
            problem = int8_problem()
            if problem:
                raise UsageError(problem, "use float32")
        name = "float32" if dtype == INT8 else dtype
        precision = resolve_dtype(name, self._device, stored_dtype(checkpoint))
        if threads is not None:
            torch.set_num_threads(threads)
        if self._device.type == "cpu":
            keep_freed_memory()
        self._config = checkpoint.config
        self._spec = checkpoint.onnx_spec
        self.model = load_model(checkpoint, precision, self._device)
        require_no_nan(self.model, checkpoint.path)
        self.stored_bytes = sum(tensor.nbytes for tensor in self.model.state_dict().values())
        accepted = inspect.signature(self.model.forward).parameters
        mask = accepted.get("attention_mask")
        self._mask_is_optional = mask is not None and mask.default is None
        self.backend = self._device.type
        self.device = str(self._device)
        self.dtype = dtype if dtype == INT8 else str(precision).removeprefix("torch.")
        if self.dtype == INT8:
            quantize_linear_maps(self.model)
            getattr(self.model, "quantize_output", bool)()  # of language models
        elif self.backend == "cpu" and self.dtype == "float32":
            getattr(self.model, "optimize_for_inference", bool)()  # optional, see Decoder
            if is_faster():
                use_onednn(self.model)
            if packs_in_one_row(self.model) and prompt_of(self.model) is None:
                self.padding_cost = PACKED_PADDING_COST
        self.inputs = tuple(self._spec.inputs)
        self.outputs = tuple(self._spec.outputs)
        self.layers = hidden_state_count(self.model)

    @override
    def concurrent_batches(self, count: int) -> int:
        if self._device.type != "cpu":
            return 1
        return min(torch.get_num_threads(), count, MAX_CONCURRENT_BATCHES)

    @contextlib.contextmanager
    @override
    def divide_threads(self, count: int) -> Iterator[Callable[[], None]]:
        threads = torch.get_num_threads()
        try:
            # It sets the number of the thread that calls it, and what torch reports in all.
            yield partial(torch.set_num_threads, max(1, threads // count))
        finally:
            torch.set_num_threads(threads)

    @override
    def run(self, inputs: "Arrays", outputs: Sequence[str] | None = None) -> "dict[str, Floats]":
        names = check_outputs(outputs, self.outputs)
        results = self._forward(inputs)
        return {name: to_numpy(results[name]) for name in names}

    @override
    def run_attended(
        self, inputs: "Arrays", outputs: Sequence[str] | None = None
    ) -> "dict[str, Floats]":
        if self.padding_cost == 1.0:
            return self.run(inputs, outputs)
        with packing_in_inference():
            return self.run(inputs, outputs)

    @override
    def hidden_states(
        self, inputs: "Arrays", layers: Sequence[int] | None = None
    ) -> "list[Floats]":
        numbers = range(self.layers) if layers is None else layers
        with capture(self.model, hidden=tuple(numbers)) as captured:
            self._forward(inputs)
        states = [captured.hidden[number] for number in numbers]
        prompt = prompt_of(self.model)
        if prompt is not None:
            # The tokens of a prompt are not the text's.
            total_length = next(iter(inputs.values())).shape[1] + prompt.length
            for number, state in enumerate(states):
                if state.shape[1] == total_length:
                    states[number] = state[:, prompt.length :]
        return [to_numpy(state) for state in states]

    @override
    def decoder(self) -> "SessionDecoder":
        from zoo.inference.generation.decoder import SessionDecoder

        if not isinstance(self.model, SessionDecoder):
            raise UsageError("the model does not generate text", "convert it with another head")
        return self.model

    def _forward(self, inputs: "Arrays") -> dict[str, Tensor]:
        arrays, _ = check_inputs(inputs, self._spec, self._config)
        mask = arrays.get("attention_mask")
        if mask is not None and self._mask_is_optional and mask.all():
            del arrays["attention_mask"]  # attention runs a faster kernel without a mask
        tensors = {name: torch.from_numpy(a).to(self._device) for name, a in arrays.items()}
        with torch.inference_mode():
            return self.model(**tensors)  # type: ignore[no-any-return]


def to_numpy(tensor: Tensor) -> "Floats":
    """Return an array in float32, or in float64 as it is."""
    wide = at_least_float32(tensor)
    return wide.cpu().numpy()

"""A reader of a runtime's file, with the Hub's names and shapes of the tensors."""

from typing import TYPE_CHECKING, Any

from zoo.conversion.dtypes import widen
from zoo.families.runtimes import RuntimeModel
from zoo.io.tensors.formats import FLOATING, TensorInfo, TensorReader, widest_dtype
from zoo.overrides import override
from zoo.weights import TensorMapping, WeightMap

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class RuntimeReader(TensorReader):
    """Tensors of a runtime's file, rearranged first to ours and then to the Hub's."""

    # Tensors that the model has no rule for keep their names, so that a conversion reports them.

    def __init__(self, inner: TensorReader, model: RuntimeModel, weights: WeightMap) -> None:
        self.inner = inner
        self.files = inner.files
        hub_entries = {entry.target: entry for entry in weights.entries()}
        self._pairs: dict[str, tuple[TensorMapping, TensorMapping, int]] = {}
        self.tensors: dict[str, TensorInfo] = {}
        mapped_names = set[str]()
        for runtime_entry in model.weights.entries():
            if not set(runtime_entry.sources) <= inner.tensors.keys():
                continue
            mapped_names.update(runtime_entry.sources)
            hub_entry = hub_entries[runtime_entry.target]
            codes = [inner.tensors[name].dtype for name in runtime_entry.sources]
            integers = [code for code in codes if code not in FLOATING]  # They are refused by name.
            code = integers[0] if integers else widest_dtype(codes)
            shapes = [inner.tensors[name].shape for name in runtime_entry.sources]
            if shapes != list(runtime_entry.source_shapes):
                # The conversion reports them as tensors with another shape.
                self.tensors |= {name: inner.tensors[name] for name in runtime_entry.sources}
                continue
            hub_tensors = zip(hub_entry.sources, hub_entry.source_shapes, strict=True)
            for index, (name, shape) in enumerate(hub_tensors):
                self._pairs[name] = (runtime_entry, hub_entry, index)
                self.tensors[name] = TensorInfo(code, shape)
        unmapped_names = inner.tensors.keys() - mapped_names - set(model.copies)
        self.tensors |= {name: inner.tensors[name] for name in unmapped_names}

    @override
    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        if name not in self._pairs:
            return self.inner.read(name)
        runtime_entry, hub_entry, index = self._pairs[name]
        arrays: list[Any] = [self.inner.read(source) for source in runtime_entry.sources]
        codes = [self.inner.tensors[source].dtype for source in runtime_entry.sources]
        tensor = runtime_entry.op.from_hub(widen(arrays, codes), hub_entry.shape)
        array: NDArray[np.generic[Any]] = hub_entry.op.to_hub(tensor)[index]
        return array

    @override
    def close(self) -> None:
        self.inner.close()

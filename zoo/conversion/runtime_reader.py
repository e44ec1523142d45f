"""A reader of a runtime's file, with the Hub's names and shapes of the tensors."""

from typing import TYPE_CHECKING, Any

from zoo.conversion.dtypes import widened
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
        hub = {entry.target: entry for entry in weights.entries()}
        self._pairs: dict[str, tuple[TensorMapping, TensorMapping, int]] = {}
        self.tensors: dict[str, TensorInfo] = {}
        read = set[str]()
        for theirs in model.weights.entries():
            if not set(theirs.sources) <= inner.tensors.keys():
                continue
            read |= set(theirs.sources)
            ours = hub[theirs.target]
            codes = [inner.tensors[name].dtype for name in theirs.sources]
            integers = [code for code in codes if code not in FLOATING]  # refused by name
            code = integers[0] if integers else widest_dtype(codes)
            shapes = [inner.tensors[name].shape for name in theirs.sources]
            if shapes != list(theirs.source_shapes):  # reported as a tensor of another shape
                self.tensors |= {name: inner.tensors[name] for name in theirs.sources}
                continue
            for part, (name, shape) in enumerate(
                zip(ours.sources, ours.source_shapes, strict=True)
            ):
                self._pairs[name] = (theirs, ours, part)
                self.tensors[name] = TensorInfo(code, shape)
        copies = set(model.copies)
        left = inner.tensors.keys() - read - copies
        self.tensors |= {name: inner.tensors[name] for name in left}

    @override
    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        if name not in self._pairs:
            return self.inner.read(name)
        theirs, ours, part = self._pairs[name]
        arrays: list[Any] = [self.inner.read(source) for source in theirs.sources]
        codes = [self.inner.tensors[source].dtype for source in theirs.sources]
        tensor = theirs.op.from_hub(widened(arrays, codes), ours.shape)
        found: NDArray[np.generic[Any]] = ours.op.to_hub(tensor)[part]
        return found

    @override
    def close(self) -> None:
        self.inner.close()

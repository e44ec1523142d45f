"""LSTM language models and classifiers (Dai and Le 2015, arXiv:1511.01432)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import VerificationError
from zoo.families.base import Family, Head
from zoo.families.causal import CausalFamily, causal_lm_head
from zoo.families.config import Config, ConfigMap
from zoo.families.heads import standard_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo_lstm.config import CONFIG_MAP, LstmConfig
from zoo_lstm.weights import GATES, OUTPUT, OUTPUT_BIAS, RECURRENT, TOKENS

if TYPE_CHECKING:
    from zoo.io.tensors.formats import TensorInfo
    from zoo.tokenizers import SourceFiles


class StatefulHead(Head):
    """A head that generates from a state of one size, which is not a cache of keys and values."""

    @property
    @override
    def has_cache(self) -> bool:
        return False


# No class of the Hub is an LSTM.
_LM = causal_lm_head()
_HEADS = {
    "none": standard_head("none"),
    "causal-lm": StatefulHead(_LM.architectures, _LM.outputs, _LM.tasks, _LM.summary),
    "sequence-classification": standard_head(
        "sequence-classification",
        summary="classification or regression of texts, by the last state",
    ),
}


class Lstm(CausalFamily):
    """The family; it imports torch when a model is built.

    Its files are those of ``word_language_model``, the example of PyTorch, with a ``config.json``.
    The keys that shapes of tensors determine may be left out there.
    """

    name: ClassVar[str] = "lstm"
    package: ClassVar[str] = "zoo_lstm"
    model_types: ClassVar[tuple[str, ...]] = ("lstm",)
    config_type: ClassVar[type[Config]] = LstmConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = ""  # None is published.
    named_heads: ClassVar[Mapping[str, Head]] = _HEADS

    @override
    def infer_config(
        self, hub: Mapping[str, Any], tensors: "Mapping[str, TensorInfo]", files: "SourceFiles"
    ) -> dict[str, Any]:
        keys = dict(hub)
        table = _matrix(tensors, TOKENS)
        if table is not None:
            keys.setdefault("vocab_size", table[0])
            keys.setdefault("embedding_size", table[1])
        recurrent = _matrix(tensors, RECURRENT)
        if recurrent is not None:
            rows, width = recurrent
            if rows != GATES * width:
                raise VerificationError(
                    f"{RECURRENT} is {rows} x {width}, and an LSTM has {GATES} gates, that is "
                    f"{GATES * width} rows",
                    "a GRU has three and a plain RNN one, which zoo does not implement",
                )
            keys.setdefault("hidden_size", width)
            layers = sum(name.startswith(RECURRENT[:-1]) for name in tensors)
            keys.setdefault("num_hidden_layers", layers)
        # A file that has the bias only is of a language model with tied embeddings.
        keys.setdefault("tie_word_embeddings", OUTPUT_BIAS in tensors and OUTPUT not in tensors)
        return keys


def _matrix(tensors: "Mapping[str, TensorInfo]", name: str) -> tuple[int, ...] | None:
    """Return the shape of a matrix; ``None`` for a tensor that is absent or of another kind."""
    shape = tensors[name].shape if name in tensors else ()
    return tuple(shape) if len(shape) == 2 else None


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Lstm(),)

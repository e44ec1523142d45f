"""What a plugin provides for one model family. Declaring one is free: torch comes with use."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.tokenizers.train import TokenizerTrainSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from zoo.families.onnx import OnnxSpec
    from zoo.families.recipe import Recipe
    from zoo.tokenizers import SourceFiles, TextTokenizer
    from zoo.weights import WeightMap
    from zoo.weights.releases import ReleaseTensor


@dataclass(frozen=True)
class Head:
    """What sits on top of the trunk, and under which names the Hub knows it.

    Axes are words such as ``batch tokens hidden_size``: a field of the configuration is a fixed
    size, ``labels`` for as many as there are, and any other word is a dynamic axis.

    Attributes:
        architectures: the class names that a Hub ``config.json`` gives for it, in the order of
            the family's model types; older names follow.
        outputs: names of what the model returns, in order -> their axes.
        tasks: the ``zoo run`` tasks it serves.
        summary: one line for ``zoo families``.
        inputs: names of what the model takes -> their axes.
    """

    architectures: tuple[str, ...]
    outputs: Mapping[str, str]
    tasks: tuple[str, ...]
    summary: str
    inputs: Mapping[str, str] = field(
        default_factory=lambda: dict.fromkeys(("input_ids", "attention_mask"), "batch tokens")
    )


class Family(ABC):
    """A model family: its names, shapes and formulas. It opens no file.

    The package of a family has the same modules in every plugin: ``config`` with ``SIZES``,
    ``model`` with ``build(config, head)``, ``weights`` with ``weights(config, head)`` and
    ``recipe`` with ``recipe(size)``. Each is imported on first use, so that listing families
    imports no torch. A subclass that overrides the methods ``sizes``, ``model``, ``weights`` and
    ``recipe`` needs no such module.

    Attributes:
        name: the family's name, equal to its entry point's.
        package: import name of the package with the family's modules. A subclass of a family
            inherits it, with the modules of that family.
        model_types: the ``model_type`` values of a Hub ``config.json`` that it answers for.
        config_type: its configuration class.
        config_map: Hub configuration keys <-> fields of ``config_type``.
        config_maps: the same for those model types that have a table of their own.
        default_checkpoint: the registry name that the bare family name stands for.
        config_files: what the configuration is called in a published checkpoint, as patterns; the
            first is the name of the one that is written.
        weight_format: the format that published weights are in; back in the Hub's layout they are
            written in it.
        special_tokens: role (``cls``, ``mask``, ...) -> token, for where no tokenizer file names
            one.
        new_tokenizers: kind (``wordpiece``, ``byte-level-bpe``, ``unigram`` or ``words``) -> how
            such a tokenizer is laid out when one is trained; the first is the usual.
        objectives: those that no other family has: name -> ``module:class``.
    """

    name: ClassVar[str]
    package: ClassVar[str] = ""
    model_types: ClassVar[tuple[str, ...]]
    config_type: ClassVar[type[Config]]
    config_map: ClassVar[ConfigMap]
    config_maps: ClassVar[Mapping[str, ConfigMap]] = {}
    default_checkpoint: ClassVar[str]
    config_files: ClassVar[tuple[str, ...]] = ("config.json",)
    weight_format: ClassVar[str] = "safetensors"
    special_tokens: ClassVar[Mapping[str, str]] = {}
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {}
    objectives: ClassVar[Mapping[str, str]] = {}

    def sizes(self) -> Mapping[str, Any]:
        """Return the named configurations; ``tiny`` is mandatory, tests and demos use it."""
        return self._module("config").SIZES  # type: ignore[no-any-return]

    @abstractmethod
    def heads(self) -> Mapping[str, Head]:
        """Return the heads; ``none`` is the bare trunk."""

    def model_type(self, config: Any) -> str:
        """Return the ``model_type`` that a configuration has on the Hub; here the first."""
        return self.model_types[0]

    def architecture(self, config: Any, head: str) -> str:
        """Return the name of the Hub's class for a configuration and head; here the one of its
        model type.

        Raises:
            UsageError: the Hub has none.
        """
        name = self._architecture(config, head)
        if name is None:
            raise UsageError(f"the Hub has no class for {self.title(config)} with the head {head}")
        return name

    def _architecture(self, config: Any, head: str) -> str | None:
        place = self.model_types.index(self.model_type(config))
        return next(iter(self.heads()[head].architectures[place:]), None)

    def title(self, config: Any) -> str:
        """Return what messages call a configuration's models; here the family's name."""
        return self.name

    def matches_config(self, hub: Mapping[str, Any]) -> bool:
        """Whether a published configuration is of this family; here, if its ``model_type`` is.

        It is asked where a checkpoint has no ``config.json`` and a file of ``config_files``. Where
        that names no ``model_type``, its own name says whose it is.
        """
        return hub.get("model_type", self.name) in self.model_types

    def has_reference(self, config: Any, head: str) -> bool:
        """Whether the Hub's library has a class that computes the same, to compare with; here
        where a class is named at all.
        """
        return self._architecture(config, head) is not None

    def from_hf(self, hub: Mapping[str, Any], where: str = "config.json") -> TranslatedConfig:
        """Translate a Hub configuration by the table of its ``model_type``.

        Args:
            hub: the parsed ``config.json``.
            where: the file, for messages.

        Raises:
            VerificationError: see ``ConfigMap.to_ours``.
        """
        table = self.config_maps.get(str(hub.get("model_type")), self.config_map)
        return table.to_ours(hub, self.config_type, where)

    def to_hf(self, config: Any, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Translate back by the same table; ``model_type`` included.

        Args:
            config: the family's configuration.
            extra: see ``ConfigMap.to_hf``.

        Raises:
            VerificationError: see ``ConfigMap.to_hf``.
        """
        model_type = self.model_type(config)
        table = self.config_maps.get(model_type, self.config_map)
        return {**table.to_hf(config, extra), "model_type": model_type}

    def map_release_tensors(
        self, naming_scheme: str, names: Collection[str], head: str
    ) -> "dict[str, ReleaseTensor]":
        """Say what the tensors of another release are on the Hub; here what a function in
        ``weights.py`` says, which is called ``from_`` and the dialect, if there is one.

        Args:
            naming_scheme: whose names they are, see ``Format.dialect``.
            names: the names there of all tensors of a checkpoint.
            head: the head that is wanted: a release may put several models into one file.

        Returns:
            each name -> what it is; names that nobody knows stay as they are.

        Raises:
            UsageError: the family does not know that release.
        """
        known = getattr(self._module("weights"), f"from_{naming_scheme}", None)
        if known is None:
            raise UsageError(f"{self.name} does not know the names of {naming_scheme} checkpoints")
        return known(names, head)  # type: ignore[no-any-return]

    def model(self, config: Any, head: str) -> "nn.Module":
        """Build the model with fresh weights.

        Its ``forward`` takes the tensors that ``onnx`` lists as inputs, as keywords, and returns
        a dict with the head's outputs. Its parameters are named as the targets of ``weights``.
        The trunk's blocks are in an ``nn.ModuleList`` called ``layers``, after a module called
        ``embeddings``: ``zoo verify`` and ``zoo run features`` look at what they return. Where a
        norm follows the last block, it is called ``final_norm``, and what it returns takes the
        place of the last block's. Where a decoder follows, it is a module called ``decoder`` with
        ``layers`` and ``final_norm`` of its own.
        """
        return self._module("model").build(config, head)  # type: ignore[no-any-return]

    def weights(self, config: Any, head: str) -> "WeightMap":
        """Say how each Hub tensor becomes one of ours, for this configuration and head."""
        return self._module("weights").weights(config, head)  # type: ignore[no-any-return]

    def recipe(self, size: str) -> "Recipe":
        """Say how a size is pretrained, as the paper or the released code has it.

        Raises:
            UsageError: the family says of none.
        """
        return self._module("recipe").recipe(size)  # type: ignore[no-any-return]

    def _module(self, name: str) -> ModuleType:
        """Import a module of ``package``.

        Raises:
            UsageError: there is no such module.
        """
        if not self.package:
            raise UsageError(
                f"the family {self.name} names no package", "set `package` in its class"
            )
        module = f"{self.package}.{name}"
        if find_spec(module) is None:
            raise UsageError(f"the family {self.name} has no module {module}")
        return import_module(module)

    def max_seq_len(self, config: Any) -> int | None:
        """Return how many tokens a text may have; here as many as there are positions, if any."""
        return getattr(config, "max_positions", None)

    def onnx(self, config: Any, head: str) -> "OnnxSpec":
        """Name the graph's inputs, outputs and dynamic axes; here as the head names them."""
        from zoo.families.onnx import OnnxSpec, resolve_axes

        said, longest = self.heads()[head], self.max_seq_len(config)
        return OnnxSpec(
            inputs=resolve_axes(said.inputs, config),
            outputs=resolve_axes(said.outputs, config),
            limits={} if longest is None else {"tokens": longest},
        )

    def text_tokenizer(self, config: Any) -> "TextTokenizer | None":
        """Return the tokenizer of a family whose inputs follow from the text alone, or ``None``
        if a checkpoint's ``tokenizer.json`` says how texts are read.
        """
        return None

    @abstractmethod
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the tokenizer from what a checkpoint ships.

        Raises:
            VerificationError: the files contradict each other.
        """

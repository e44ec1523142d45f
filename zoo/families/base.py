"""Base class of model families, which plugins subclass. Importing a family imports no torch."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.families.adapters import AdapterTargets
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.families.presets import SHARED, Preset
from zoo.tokenizers.train import TokenizerTrainSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor, nn

    from zoo.families.distillation import DistillationRecipe
    from zoo.families.longer import LongerModel
    from zoo.families.onnx import OnnxSpec
    from zoo.families.recipe import Recipe
    from zoo.families.runtimes import RuntimeHeader, RuntimeModel
    from zoo.families.span_beams import Floats, SpanBeams
    from zoo.io.tensors.formats import TensorInfo
    from zoo.nn.logits_processor import LogitsProcessor
    from zoo.sentence_models.pooling import Pooling
    from zoo.tokenizers import SourceFiles, TextTokenizer
    from zoo.tokenizers.splitters import AnySplitter
    from zoo.weights import WeightMap
    from zoo.weights.releases import ReleaseTensor


GENERATING = frozenset(("generate", "seq2seq"))  # tasks of heads that generate text
DECODER_TOKENS = "decoder_tokens"  # axis of the tokens of a decoder after an encoder
EMBEDDING = ("embed", "similarity", "rerank", "search")  # of models with pooling
LABELLED = frozenset(("answer", "choose", "classify"))  # of heads that are learned from labels


@dataclass(frozen=True)
class Head:
    """A head: the inputs and outputs of a model, its tasks, and its class on the Hub.

    Axes are a line of words such as ``batch tokens hidden_size``: a field of the configuration is
    a fixed size (``labels``: their number), a number is itself, any other word is a dynamic axis.

    Attributes:
        architectures: class names in a Hub ``config.json``, in the order of the family's model
            types; older names follow.
        outputs: output names, in order -> their axes.
        tasks: the tasks of ``zoo run`` that the head serves.
        summary: one line for ``zoo families``.
        inputs: input names -> their axes.
    """

    architectures: tuple[str, ...]
    outputs: Mapping[str, str]
    tasks: tuple[str, ...]
    summary: str
    inputs: Mapping[str, str] = field(
        default_factory=lambda: dict.fromkeys(("input_ids", "attention_mask"), "batch tokens")
    )

    @property
    def has_labels(self) -> bool:
        """True if the configuration names the outputs, such as a classifier's."""
        return any("labels" in axes.split() for axes in self.outputs.values())

    @property
    def has_cache(self) -> bool:
        """True if exports have a key-value cache: a token depends on earlier ones only.

        A head that also fills masks reads both sides of a token, so that keys and values change
        with each new token.
        """
        return bool(GENERATING.intersection(self.tasks)) and "fill-mask" not in self.tasks


MIXING_HEADS = ("sequence-classification", "token-classification")
POOLING_HEAD = "sequence-classification"


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
        model_types: values of ``model_type`` in a Hub ``config.json`` of this family.
        config_type: the configuration class.
        config_map: table of Hub configuration keys and fields of ``config_type``.
        config_maps: model type -> its table, where it is not ``config_map``.
        default_checkpoint: registry name of the checkpoint that the family's name refers to; empty
            if none is published.
        config_files: file names of the configuration in published checkpoints, as patterns; the
            first is the name under which it is written.
        weight_format: format of published weights, in which an export to the Hub's layout is
            written.
        special_tokens: role (``cls``, ``mask``, ...) -> token, used where no tokenizer file names
            one.
        tokenizer_classes: tokenizers of the Hub's library whose files ``tokenizer`` reads, without
            ``Fast``. A model of another family whose files name one of them has that tokenizer.
        new_tokenizers: kind (``wordpiece``, ``byte-level-bpe``, ``unigram`` or ``words``) ->
            settings of a tokenizer that is trained; the first kind is the default.
        objectives: objectives of this family only: name -> ``module:class``.
        padding_side: side on which the Hub's classes need padding: ``right``, or ``left`` where
            they read the last token of a row. With ``left``, the context of a question is before
            it, as in transformers.
        adapter_targets: linear maps that adapters change by default.
        other_classes: class names in ``architectures`` of configurations of other code than the
            Hub's, which have keys of their own: see ``translate_config``.
        other_config_classes: names of configuration classes of other code, as ``AutoConfig`` of
            ``auto_map`` names them, whose files have keys of their own as well.
        fields_by_stage: fields of the configuration that may differ between the stages of a run,
            because no weight depends on them. ``reconfigure`` changes them.
        reference_exceptions: name of a check of training against transformers, ``dropout_rates``
            or ``reference_initialization`` -> why the family follows another source, such as the
            released code. ``reference_initialization`` followed by a space and the name of a head
            is for the tensors of that head, and not the backbone's;
            ``reference_defaults`` and the name of a field for its default.
        reference_modules: our modules -> modules of the Hub's class that return the same, such as
            ``{"embeddings": "layer_norm_emb", "layers.{i}": "layer_norm2.{i}"}``; ``{i}`` is the
            number of a layer. ``zoo verify`` and the checks name the first module that differs.
            Modules with weights follow from the rules, and need no entry.
        sentence_module: class of sentence-transformers that is the model in its ``modules.json``.
            Of ``StaticEmbedding``, whose output is a vector for each text, the mean of the tokens
            is a part.
        grown_from: names of the families whose models ``longer_model`` takes over.
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
    tokenizer_classes: ClassVar[tuple[str, ...]] = ()
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {}
    objectives: ClassVar[Mapping[str, str]] = {}
    padding_side: ClassVar[str] = "right"
    adapter_targets: ClassVar[AdapterTargets] = AdapterTargets()
    other_classes: ClassVar[tuple[str, ...]] = ()
    other_config_classes: ClassVar[tuple[str, ...]] = ()
    fields_by_stage: ClassVar[tuple[str, ...]] = ()
    reference_exceptions: ClassVar[Mapping[str, str]] = {}
    reference_modules: ClassVar[Mapping[str, str]] = {}
    sentence_module: ClassVar[str] = "Transformer"
    grown_from: ClassVar[tuple[str, ...]] = ()

    def sizes(self) -> Mapping[str, Any]:
        """Return the configurations by size; ``tiny``, for tests and demos, is mandatory."""
        return self._module("config").SIZES  # type: ignore[no-any-return]

    @abstractmethod
    def heads(self) -> Mapping[str, Head]:
        """Return the heads by name; ``none`` is the bare backbone."""

    def model_type(self, config: Any) -> str:
        """Return the ``model_type`` of a configuration on the Hub.

        By default, it is the field ``model_type`` if the configuration has one, or else the first.
        """
        return getattr(config, "model_type", self.model_types[0])

    def architecture(self, config: Any, head: str) -> str:
        """Return the name of the Hub's class for a configuration and head.

        Raises:
            UsageError: the Hub has none.
        """
        name = self._architecture(config, head)
        if name is None:
            raise UsageError(f"the Hub has no class for {self.title(config)} with the head {head}")
        if (reason := self.unsupported_on_hub(config, head)) is not None:
            raise UsageError(
                f"{reason}, which no class of the Hub has", "use it with zoo run or zoo export"
            )
        return name

    def unsupported_on_hub(self, config: Any, head: str) -> str | None:
        """Return what a head has that no class of the Hub has, or ``None``.

        By default, that is a learned mix of all layers (``zoo.nn.layers.scalar_mix``) or another
        pooling of texts.

        Args:
            config: configuration of the model.
            head: name of the head.
        """
        if head in MIXING_HEADS and getattr(config, "mix", False):
            return f"the head {head} reads a mix of all layers"
        pooling = getattr(config, "pooling", None)
        if head == POOLING_HEAD and getattr(config, "sentence_head", None) is not None:
            return f"the head {head} reads the embedding of a text"
        if head == POOLING_HEAD and pooling is not None:
            return f"the head {head} reads the {pooling} of a text's tokens"
        return None

    def _architecture(self, config: Any, head: str) -> str | None:
        index = self.model_types.index(self.model_type(config))
        return next(iter(self.heads()[head].architectures[index:]), None)

    def title(self, config: Any) -> str:
        """Return the name of a configuration's models in messages; by default the family's."""
        return self.name

    def matches_config(self, hub: Mapping[str, Any]) -> bool:
        """Return whether a published configuration belongs to this family, by its ``model_type``.

        Called for a checkpoint without ``config.json`` and with a file of ``config_files``; if the
        file names no ``model_type``, its file name decides.
        """
        return hub.get("model_type", self.name) in self.model_types

    def translate_config(self, hub: Mapping[str, Any]) -> dict[str, Any]:
        """Return the Hub's configuration for one of ``other_classes`` or ``other_config_classes``.

        Args:
            hub: the parsed ``config.json``, whatever ``model_type`` it has.

        Raises:
            VerificationError: it describes a model that the family does not implement.
        """
        raise NotImplementedError(f"{self.name} has other_classes, and no translate_config")

    def has_reference(self, config: Any, head: str) -> bool:
        """Return whether the Hub's library has a class that computes the same outputs."""
        known = self._architecture(config, head) is not None
        return known and self.unsupported_on_hub(config, head) is None

    def reference_inputs(
        self, head: str, inputs: "Mapping[str, Tensor]", reference_config: Any
    ) -> "Mapping[str, Tensor]":
        """Return the arguments with which the Hub's class computes the same; by default the same.

        Args:
            head: name of the head.
            inputs: inputs of the model.
            reference_config: configuration of the Hub's model.
        """
        return inputs

    def unused_parameters(self, config: Any, head: str) -> Collection[str]:
        """Return names of parameters that the outputs of a head may not depend on; by default none.

        The Hub's classes have them as well, such as projections of global tokens where a head has
        no such token.

        Args:
            config: the family's configuration.
            head: name of the head.
        """
        return ()

    def longer_model(self, family: str, config: Any, max_seq_len: int) -> "LongerModel":
        """Return a model of this family that begins with the weights of a model for shorter texts.

        Args:
            family: name of the family of the other model.
            config: configuration of the other model.
            max_seq_len: number of tokens of the longest text.

        Raises:
            UsageError: this family takes over no model of the other one.
        """
        hint = "leave --family and --max-seq-len out"
        if self.grown_from:
            hint = f"it grows models of {', '.join(self.grown_from)}"
        raise UsageError(f"{self.name} takes over no weights of {family}", hint)

    def span_beams(self, config: Any, outputs: "Mapping[str, Floats]") -> "SpanBeams":
        """Return the answers that a head of the task ``answer`` without token logits searched for.

        Other heads of the task have the outputs ``start_logits`` and ``end_logits``. If such a head
        has the input ``p_mask``, that is 1 for tokens that are not in an answer.

        Args:
            config: the family's configuration.
            outputs: outputs of the model by name.

        Raises:
            UsageError: the family has no such head.
        """
        raise UsageError(
            f"a head of {self.name} has neither start_logits nor answers",
            "override `span_beams` in its family",
        )

    def from_hub(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        """Translate a Hub configuration by the table of its ``model_type``.

        Args:
            hub: the parsed ``config.json``.
            location: name of the file, for messages.

        Raises:
            VerificationError: see ``ConfigMap.from_hub``.
        """
        table = self.config_maps.get(str(hub.get("model_type")), self.config_map)
        return table.from_hub(hub, self.config_type, location)

    def infer_config(
        self, hub: Mapping[str, Any], tensors: "Mapping[str, TensorInfo]", files: "SourceFiles"
    ) -> Mapping[str, Any]:
        """Return a Hub configuration with the keys that other files determine; by default as it is.

        Args:
            hub: the parsed ``config.json``; empty for a directory of sentence-transformers that
                needs none.
            tensors: name -> dtype and shape of the weights.
            files: tokenizer and other side files.

        Raises:
            VerificationError: the files contradict each other.
        """
        return hub

    def prompt_types(self, config: Any) -> Mapping[str, int]:
        """Return the prompts that select a part of the model, by the type of the tokens.

        Args:
            config: the family's configuration.

        Returns:
            name of a prompt -> the value of ``token_type_ids`` for texts with it; other texts
            have the types of the tokenizer. By default none.
        """
        return {}

    def sentence_settings(
        self, hub: Mapping[str, Any], pooling: "Pooling | None", location: str
    ) -> "Pooling | None":
        """Return the settings of a sentence encoder; ``config.json`` may state some of them.

        By default, those of sentence-transformers' files.

        Args:
            hub: keys of the Hub's configuration that have no field.
            pooling: what ``modules.json`` and its folders say; ``None`` without them.
            location: name of the configuration file, for messages.

        Raises:
            VerificationError: the files contradict each other.
        """
        return pooling

    def sentence_keys(self, pooling: "Pooling") -> dict[str, Any]:
        """Return the keys of ``config.json`` that repeat settings of a sentence encoder, if any."""
        return {}

    def library_example(self, repository: str, texts: str) -> tuple[str, tuple[str, ...]] | None:
        """Return a program for the library that the family comes from, for model cards.

        Args:
            repository: name of the model's repository on the Hub.
            texts: a list of texts, as Python.

        Returns:
            name of the library, and lines of Python that print the model's results of the texts;
            ``None``, the default, for a family without a library of its own.
        """
        return None

    def to_hub(self, config: Any, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Translate a configuration to the Hub's keys, ``model_type`` included.

        Args:
            config: the family's configuration.
            extra: see ``ConfigMap.to_hub``.

        Raises:
            VerificationError: see ``ConfigMap.to_hub``.
        """
        model_type = self.model_type(config)
        table = self.config_maps.get(model_type, self.config_map)
        return {**table.to_hub(config, extra), "model_type": model_type}

    def hub_problem(self, config: Any, extra: Mapping[str, Any] | None = None) -> str | None:
        """Return why the Hub's layout cannot hold a model, or ``None``, as by default.

        Args:
            config: the family's configuration.
            extra: see ``ConfigMap.to_hub``.
        """
        return None

    def map_release_tensors(
        self, naming_scheme: str, names: Collection[str], head: str
    ) -> "dict[str, ReleaseTensor]":
        """Return the Hub names of the tensors of another release.

        The family's module ``weights`` has a function for each release, named ``from_`` and the
        naming scheme.

        Args:
            naming_scheme: see ``Format.naming_scheme``.
            names: the names of all tensors of a checkpoint.
            head: name of the head, since a release may store several models in one file.

        Returns:
            name in the release -> tensor on the Hub; unknown names are left unchanged.

        Raises:
            UsageError: the family has no such function.
        """
        translate = getattr(self._module("weights"), f"from_{naming_scheme}", None)
        if translate is None:
            raise UsageError(f"{self.name} does not know the names of {naming_scheme} checkpoints")
        return translate(names, head)  # type: ignore[no-any-return]

    def model(self, config: Any, head: str) -> "nn.Module":
        """Return a model with randomly initialized weights.

        Its ``forward`` takes the inputs of ``onnx`` by name, and returns a dict with the head's
        outputs. Its parameters are named as the targets of ``weights``. ``zoo verify`` and
        ``zoo run features`` use the outputs of its submodules: ``embeddings``, the blocks in an
        ``nn.ModuleList`` called ``layers``, and ``final_norm``, if a norm follows the last block,
        in place of that block's output. A decoder after an encoder is a submodule ``decoder`` with
        ``layers`` and ``final_norm`` of its own.
        """
        return self._module("model").build(config, head)  # type: ignore[no-any-return]

    def starts_word(self, text: str) -> bool:
        """Return whether a token starts a word, for masks of whole words, n-grams and spans.

        Called where tokens mark a space before them: in SentencePiece and byte-level vocabularies.
        By default, only a space starts a word, so that punctuation belongs to the word before it
        (``is_beginning_of_word`` of fairseq, the code released with arXiv:1907.11692).

        Args:
            text: text of the token, with the space before it.
        """
        return text.startswith(" ")

    def weights(self, config: Any, head: str) -> "WeightMap":
        """Return the rules that map the Hub's tensors to the model's, for a head."""
        return self._module("weights").weights(config, head)  # type: ignore[no-any-return]

    def runtime_model(self, target: str, config: Any, head: str) -> "RuntimeModel | str":
        """Return a model as the format of an export target describes it, or why it cannot.

        The family's module ``runtimes`` has a function for each target, with its name. Targets
        that are made from the ONNX graph, such as OpenVINO, need none.

        Args:
            target: name of the export target.
            config: the family's configuration.
            head: name of the head.
        """
        describe = self._runtime_function(target)
        if describe is not None:
            return describe(config, head)  # type: ignore[no-any-return]
        return f"the family {self.name} does not declare how the format names its tensors"

    def runtime_refusal(self, target: str, config: Any, head: str) -> str | None:
        """Return why a target that is made from the ONNX graph cannot hold a model, or ``None``.

        Args:
            target: see ``runtime_model``.
            config: see ``runtime_model``.
            head: see ``runtime_model``.
        """
        describe = self._runtime_function(target)
        found = None if describe is None else describe(config, head)
        return found if isinstance(found, str) else None

    def _runtime_function(self, name: str) -> Any:
        if self.package and find_spec(f"{self.package}.runtimes") is not None:
            return getattr(self._module("runtimes"), name, None)
        return None

    def config_of_runtime(self, target: str, header: "RuntimeHeader") -> "Mapping[str, Any] | None":
        """Return the Hub configuration of a model in the format of a runtime.

        It has ``model_type`` and, if the file determines the head, ``architectures``. The family's
        module ``runtimes`` has a function for each format that can be read without a
        ``config.json``, named ``from_`` and the target.

        Args:
            target: name of the format, which is that of the export target that writes it, if one
                does.
            header: what the file says of the model.

        Returns:
            the keys; ``None`` for a model of another family.

        Raises:
            VerificationError: the file contradicts itself, or lacks a key.
        """
        translate = self._runtime_function(f"from_{target.replace('-', '_')}")
        return None if translate is None else translate(header)

    def recipe(self, size: str) -> "Recipe":
        """Return the pretraining settings of a size, from the paper or the released code.

        Raises:
            UsageError: the family has no recipes.
        """
        return self._module("recipe").recipe(size)  # type: ignore[no-any-return]

    def presets(self) -> Mapping[str, Preset]:
        """Return the settings of fine-tuning by name of the preset; ``paper`` is the default.

        By default, those that all families share and ``PRESETS`` of the module ``recipe``, if it
        has them.
        """
        if not self.package or find_spec(f"{self.package}.recipe") is None:
            return SHARED
        return {**SHARED, **getattr(self._module("recipe"), "PRESETS", {})}

    def distillation(self) -> "tuple[DistillationRecipe, ...]":
        """Return recipes of students of this family; the first is the default.

        By default, ``DISTILLATION`` of the module ``recipe``, if it has that.
        """
        if not self.package or find_spec(f"{self.package}.recipe") is None:
            return ()
        return getattr(self._module("recipe"), "DISTILLATION", ())

    def _module(self, name: str) -> ModuleType:
        """Import a module of ``package``; ``UsageError`` if the family has none."""
        if not self.package:
            raise UsageError(
                f"the family {self.name} names no package", "set `package` in its class"
            )
        module = f"{self.package}.{name}"
        if find_spec(module) is None:
            raise UsageError(f"the family {self.name} has no module {module}")
        return import_module(module)

    def logits_processors(self, config: Any, head: str) -> "Sequence[LogitsProcessor]":
        """Return rules that every generation by a head follows; by default none.

        They precede those that a user passes; see ``zoo.nn.logits_processor.LogitsProcessor``.

        Args:
            config: the family's configuration.
            head: name of the head.
        """
        return ()

    def reconfigure(self, model: "nn.Module", config: Any) -> None:
        """Let a model compute by a configuration that differs in ``fields_by_stage``.

        The trainer calls it where a stage of a run begins, also after a resume.

        Args:
            model: what the objective's ``model`` returned.
            config: the configuration of the stage.
        """
        raise NotImplementedError(f"{self.name} has fields_by_stage, and no reconfigure")

    def max_seq_len(self, config: Any) -> int | None:
        """Return the largest number of tokens in a row.

        By default, it is ``max_seq_len`` of the configuration if it has one, or else
        ``max_positions``, if any.
        """
        if hasattr(config, "max_seq_len"):
            return config.max_seq_len  # type: ignore[no-any-return]
        return getattr(config, "max_positions", None)

    def max_decoder_len(self, config: Any) -> int | None:
        """Return the largest number of tokens of a decoder after an encoder; ``None`` for any.

        By default ``max_decoder_positions``, if the configuration has the field, or else the
        encoder's, as in models whose encoder and decoder have as many positions.
        """
        fields = type(config).__struct_fields__
        if "max_decoder_positions" in fields:
            return config.max_decoder_positions  # type: ignore[no-any-return]
        return self.max_seq_len(config)

    def onnx(self, config: Any, head: str) -> "OnnxSpec":
        """Return the inputs, outputs and axes of the ONNX graph, as the head declares them."""
        from zoo.families.onnx import OnnxSpec, resolve_axes

        declared = self.heads()[head]
        inputs = resolve_axes(declared.inputs, config)
        limits = {"tokens": self.max_seq_len(config)}
        if any(DECODER_TOKENS in axes for axes in inputs.values()):
            limits[DECODER_TOKENS] = self.max_decoder_len(config)
        return OnnxSpec(
            inputs=inputs,
            outputs=resolve_axes(declared.outputs, config),
            limits={axis: limit for axis, limit in limits.items() if limit is not None},
        )

    def text_tokenizer(self, config: Any) -> "TextTokenizer | None":
        """Return the tokenizer of a family without a vocabulary; ``None`` for all others, which
        are tokenized by a checkpoint's ``tokenizer.json``.
        """
        return None

    @abstractmethod
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the tokenizer from the files of a published checkpoint.

        Raises:
            VerificationError: the files contradict each other.
        """

    def has_tokenizer(self, files: "SourceFiles") -> bool:
        """Return whether a directory has the files of a tokenizer.

        By default, those of a vocabulary; tokenizers of bytes need none.
        """
        from zoo.tokenizers import has_tokenizer

        return has_tokenizer(files)

    def splitter(self, files: "SourceFiles") -> "AnySplitter | None":
        """Return what splits texts before ``tokenizer.json`` reads the parts, such as MeCab.

        By default, it is what the files describe, whatever their class; ``None`` for nothing.

        Raises:
            VerificationError: a file asks for what is not implemented.
        """
        from zoo.tokenizers.splitters import read_splitter

        return read_splitter(files)

    def target_tokenizer(self, files: "SourceFiles") -> "Tokenizer | None":
        """Build the tokenizer of targets, of models that split them by other pieces than sources.

        By default, it is a file that ``zoo convert --to hub`` wrote, or ``None``.

        Raises:
            VerificationError: the file is malformed.
        """
        from zoo.tokenizers.source_files import TARGET_TOKENIZER_JSON
        from zoo.tokenizers.tokenizer_json import parse

        if not files.has(TARGET_TOKENIZER_JSON):
            return None
        return parse(files.bytes(TARGET_TOKENIZER_JSON), files.path(TARGET_TOKENIZER_JSON))

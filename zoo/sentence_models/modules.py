"""Modules of a sentence encoder after its backbone, as sentence-transformers lists them."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

from zoo.errors import VerificationError
from zoo.io.json import JsonStruct

TOKENS = "token_embeddings"
SENTENCE_VECTOR = "sentence_embedding"
MODULE_WEIGHTS = "model.safetensors"
UNKNOWN = 0  # width of a feature that is not known
PoolingMode = Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
ActivationName = Literal[  # of ``torch.nn``, without arguments
    "identity", "tanh", "relu", "gelu", "sigmoid", "silu", "elu", "leaky_relu", "softplus"
]


class Feature(NamedTuple):
    """Shape of a feature: (texts, tokens, width) or (texts, width)."""

    width: int
    per_token: bool


Features = dict[str, Feature]
Shapes = dict[str, tuple[int, ...]]


class SentenceModule(JsonStruct):
    """Base class of modules."""

    # Modules run in order on named features. The backbone sets ``token_embeddings``, (texts,
    # tokens, width), and the attention mask; pooling sets ``sentence_embedding``, (texts, width). A
    # module with weights has them in the file ``model.safetensors`` of its folder.

    class_name: ClassVar[str]  # name of the class in sentence-transformers

    def tensors(self) -> Shapes:
        """Return the names and shapes of the weights."""
        return {}

    def apply_to(self, features: Features) -> Features:
        """Return the features that the module sets, from those that it reads."""
        raise NotImplementedError


class PoolingModule(SentenceModule, tag="Pooling", tag_field="type"):
    """Pooling of tokens to a sentence embedding; the embeddings of several modes are joined."""

    class_name: ClassVar[str] = "Pooling"
    modes: tuple[PoolingMode, ...] = ("mean",)
    include_prompt: bool = True  # whether the tokens of a prompt are pooled

    def apply_to(self, features: Features) -> Features:
        """See ``SentenceModule``."""
        width = require_feature(features, TOKENS, self.class_name, per_token=True).width
        return {SENTENCE_VECTOR: Feature(len(self.modes) * width, per_token=False)}


class DenseModule(SentenceModule, tag="Dense", tag_field="type"):
    """A linear map, then an activation function."""

    class_name: ClassVar[str] = "Dense"
    in_features: int
    out_features: int
    bias: bool = True
    activation_function: ActivationName = "tanh"
    module_input_name: str = SENTENCE_VECTOR
    module_output_name: str = SENTENCE_VECTOR
    # whether the input is added to the output, by a linear map if the widths differ
    use_residual: bool = False

    def tensors(self) -> Shapes:
        """See ``SentenceModule``."""
        shape = (self.out_features, self.in_features)
        shapes: Shapes = {"linear.weight": shape}
        if self.bias:
            shapes["linear.bias"] = (self.out_features,)
        if self.use_residual and self.in_features != self.out_features:
            shapes["residual.weight"] = shape
        return shapes

    def apply_to(self, features: Features) -> Features:
        """See ``SentenceModule``."""
        feature = require_feature(features, self.module_input_name, self.class_name)
        require_width(feature, self.in_features, "Dense", "in_features")
        return {self.module_output_name: Feature(self.out_features, feature.per_token)}


class NormalizeModule(SentenceModule, tag="Normalize", tag_field="type"):
    """Scaling to unit length; a feature that no module set is left out."""

    class_name: ClassVar[str] = "Normalize"
    module_input_name: str = SENTENCE_VECTOR
    module_output_name: str = SENTENCE_VECTOR

    def apply_to(self, features: Features) -> Features:
        """See ``SentenceModule``."""
        feature = features.get(self.module_input_name)
        if feature is None:
            return {}
        return {self.module_output_name: feature}


class LayerNormModule(SentenceModule, tag="LayerNorm", tag_field="type"):
    """Layer normalization of the sentence embedding."""

    class_name: ClassVar[str] = "LayerNorm"
    dimension: int

    def tensors(self) -> Shapes:
        """See ``SentenceModule``."""
        return {"norm.weight": (self.dimension,), "norm.bias": (self.dimension,)}

    def apply_to(self, features: Features) -> Features:
        """See ``SentenceModule``."""
        feature = require_feature(features, SENTENCE_VECTOR, self.class_name)
        require_width(feature, self.dimension, self.class_name, "dimension")
        return {}


class DropoutModule(SentenceModule, tag="Dropout", tag_field="type"):
    """Dropout of the sentence embedding, in training."""

    class_name: ClassVar[str] = "Dropout"
    dropout: float = 0.2

    def apply_to(self, features: Features) -> Features:
        """See ``SentenceModule``."""
        require_feature(features, SENTENCE_VECTOR, self.class_name)
        return {}


class SpladePoolingModule(SentenceModule, tag="SpladePooling", tag_field="type"):
    """Weights of the words of the vocabulary: log(1 + relu(logits)), pooled over tokens."""

    # Formal et al. 2021, arXiv:2107.05720 (``sum``) and arXiv:2109.10086 (``max``). ``log1p_relu``
    # takes the logarithm twice (arXiv:2504.14839).

    class_name: ClassVar[str] = "SpladePooling"
    pooling_strategy: Literal["max", "sum"] = "max"
    activation_function: Literal["relu", "log1p_relu"] = "relu"

    def apply_to(self, features: Features) -> Features:
        """See ``SentenceModule``."""
        width = require_feature(features, TOKENS, self.class_name, per_token=True).width
        return {SENTENCE_VECTOR: Feature(width, per_token=False)}


class MaskModule(SentenceModule, tag="MultiVectorMask", tag_field="type"):
    """Selection of the tokens that later modules and late interaction read."""

    class_name: ClassVar[str] = "MultiVectorMask"
    skiplist_words: tuple[str, ...] = ()  # tokens that are left out, if the vocabulary has them
    skiplist_tasks: tuple[str, ...] = ("document",)  # of ``query`` and ``document``
    # the only tokens of documents that are kept; ``None`` for all
    keep_only_token_ids: tuple[int, ...] | None = None
    # whether the first token of a text is left out, which sentence-transformers cannot express
    skips_first: bool = False

    def apply_to(self, features: Features) -> Features:
        """See ``SentenceModule``."""
        return {}


class LexicalPoolingModule(SentenceModule, tag="LexicalPooling", tag_field="type"):
    """A weight for each token of the vocabulary, the largest of its occurrences in a text."""

    # Chen et al. 2024, arXiv:2402.03216, section 3.2 (lexical retrieval). Special tokens have no
    # weight. sentence-transformers has no such module.

    class_name: ClassVar[str] = "LexicalPooling"
    vocab_size: int

    def apply_to(self, features: Features) -> Features:
        """See ``SentenceModule``."""
        feature = require_feature(features, TOKENS, self.class_name, per_token=True)
        require_width(feature, 1, self.class_name, "the width of a weight")
        return {SENTENCE_VECTOR: Feature(self.vocab_size, per_token=False)}


AnyModule = (
    PoolingModule
    | DenseModule
    | NormalizeModule
    | LayerNormModule
    | DropoutModule
    | SpladePoolingModule
    | MaskModule
    | LexicalPoolingModule
)


def final_features(
    modules: Sequence[AnyModule], width: int, folders: Mapping[str, str] | None = None
) -> Features:
    """Return the features after all modules.

    Args:
        width: width of the output that the modules read.
        folders: folder of a module in our layout -> its folder in the files that errors name.
    """
    features = {TOKENS: Feature(width, per_token=True)}
    for number, module in enumerate(modules, 1):
        try:
            features |= module.apply_to(features)
        except VerificationError as error:
            folder = module_folder(number, module)
            origin = (folders or {}).get(folder, folder)
            raise VerificationError(f"{origin}: {error.what}", error.hint) from error
    return features


def module_folder(number: int, module: SentenceModule) -> str:
    """Return the folder of a module; its number in the list counts the backbone as 0."""
    return f"{number}_{module.class_name}"


def weighted_modules(modules: Sequence[AnyModule]) -> dict[str, Shapes]:
    """Return folder -> names and shapes of the weights, for the modules that have them."""
    shapes_by_folder = {}
    for number, module in enumerate(modules, 1):
        shapes = module.tensors()
        if shapes:
            shapes_by_folder[module_folder(number, module)] = shapes
    return shapes_by_folder


def require_feature(
    features: Features, name: str, class_name: str, *, per_token: bool | None = None
) -> Feature:
    """Return a feature that a module reads."""
    hint = "list the module that sets it first"
    feature = features.get(name)
    if feature is None:
        raise VerificationError(f"{class_name} reads {name}, which no module before it sets", hint)
    if per_token is not None and feature.per_token != per_token:
        raise VerificationError(
            f"{class_name} reads {name} of tokens, and a module before it sets the one of texts",
            hint,
        )
    return feature


def require_width(feature: Feature, width: int, class_name: str, key: str) -> None:
    """Check the width of what a module reads."""
    if feature.width not in (UNKNOWN, width):
        raise VerificationError(
            f"{key} of {class_name} is {width}, but what it reads has a width of {feature.width}",
            "the modules are of different models: fetch the model again",
        )


def require_shapes(
    file_shapes: Mapping[str, tuple[int, ...]], module_shapes: Shapes, origin: str
) -> None:
    """Check that a module's file has exactly the tensors of the module."""
    problems = []
    for name in module_shapes.keys() - file_shapes.keys():
        problems.append(f"no {name}")
    for name in file_shapes.keys() - module_shapes.keys():
        problems.append(f"an unknown tensor {name!r:.100}")
    for name, shape in module_shapes.items():
        if name in file_shapes and tuple(file_shapes[name]) != shape:
            problems.append(f"{name} of shape {list(file_shapes[name])}, not {list(shape)}")
    if problems:
        raise VerificationError(
            f"{origin} has {'; '.join(sorted(problems))}", "its config.json describes other weights"
        )

"""The configurations of Jina's encoders, and the keys of their Hub configurations."""

from typing import Any, Literal

from zoo.errors import VerificationError
from zoo.families.config import Activation, ConfigMap
from zoo.families.config.rope import (
    GROUP,
    OLD_GROUP,
    OLD_ROPE_KEYS,
    refused_rope_keys,
    rope_keys,
    rope_values,
    unsaid_rope_keys,
)
from zoo.families.encoder import CLASSIFIER_KEYS, RotaryEncoderConfig, require_positions
from zoo.overrides import override

ModelType = Literal["jina_bert", "jina_embeddings_v3", "xlm_roberta_flash"]
FLASH_CONFIG = "XLMRobertaFlashConfig"  # Class in ``auto_map`` of the code of version 3.
FLASH_CLASSES = "XLMRobertaFlash"  # Our prefix of its classes, which are called as XLM-R's.
XLMR_CLASSES = "XLMRoberta"
FLASH_CODE = "jinaai/xlm-roberta-flash-implementation"
PUBLISHED_CODE = "jinaai/jina-bert-implementation"
CLASSES = (
    "JinaBertModel",
    "JinaBertForMaskedLM",
    "JinaBertForSequenceClassification",
    "JinaBertForTokenClassification",
    "JinaBertForQuestionAnswering",
)


class JinaConfig(RotaryEncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of JinaBERT v2 and Jina Embeddings v3.

    The defaults are those of v3 in transformers. Version 2 has no class there, and no defaults: its
    configurations state their settings.
    """

    # ``jina_bert`` has linear position biases and gated feed-forward networks, the others rotary
    # positions. The Hub calls the first ``bert``. ``xlm_roberta_flash`` is the layout of the first
    # release of version 3 and of the rerankers, which the Hub calls ``xlm-roberta``.
    model_type: ModelType = "jina_embeddings_v3"
    vocab_size: int = 250002
    hidden_size: int = 1024
    num_layers: int = 24
    num_heads: int = 16
    intermediate_size: int = 4096
    max_positions: int = 8194  # number of tokens of the longest row
    # number of segment types; of a model with tasks one more than these, see ``tasks``
    type_vocab_size: int = 1
    # activation function of the head for masked tokens, and of feed-forward networks without a gate
    activation: Activation = "gelu"
    gate: Literal["gelu", "relu"] = "gelu"  # activation function of the gates of ``jina_bert``
    rope_theta: float = 20_000.0  # base of the rotary frequencies
    layer_norm_eps: float = 1e-5  # epsilon of the layer norms
    pad_token_id: int | None = 1
    # positions of ``xlm_roberta_flash``: rotations, or a learned vector of each
    positions: Literal["rotary", "absolute"] = "rotary"
    # names of the tasks of ``xlm_roberta_flash``, each with a low-rank update of all matrices. The
    # type of a token (``token_type_ids``) is the number of its task from 1, or 0 for none
    tasks: tuple[str, ...] = ()
    task_rank: int = 4  # rank of the updates
    task_alpha: float = 1.0  # the updates are multiplied by ``task_alpha / task_rank``

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tasks and self.type_vocab_size != len(self.tasks) + 1:
            raise ValueError(
                f"type_vocab_size is {self.type_vocab_size}, and {len(self.tasks)} tasks take "
                f"{len(self.tasks) + 1}"
            )
        if self.task_rank < 1:
            raise ValueError(f"task_rank is {self.task_rank}, and has to be 1 or more")
        if self.positions == "absolute":
            require_positions(self.max_positions, self.pad_token_id or 0)

    @property
    @override
    def is_rotary(self) -> bool:
        return self.model_type != "jina_bert" and self.positions == "rotary"

    @property
    @override
    def max_seq_len(self) -> int:
        if self.positions == "rotary":
            return super().max_seq_len
        return self.max_positions - (self.pad_token_id or 0) - 1


_THETA = {"rope_parameters.rope_theta": "rope_theta"}
V3_MAP = ConfigMap(
    keys={**CLASSIFIER_KEYS, "rope_theta": "rope_theta", **rope_keys()},
    fixed={
        "position_embedding_type": ("absolute", None),
        **refused_rope_keys(GROUP, OLD_GROUP),
    },
    values=rope_values(),
    follows={"head_dim": "head_size"},
    aliases={**_THETA, **OLD_ROPE_KEYS},
    unsaid=unsaid_rope_keys(),
    both=_THETA.keys(),
)
V2_MAP = ConfigMap(
    keys={**CLASSIFIER_KEYS, "feed_forward_type": "gate"},
    values={"feed_forward_type": {"geglu": "gelu", "reglu": "relu"}},
    fixed={"position_embedding_type": ("alibi",)},
    implied={
        "model_type": "jina_bert",
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_layers": 12,
        "num_heads": 12,
        "intermediate_size": 3072,
        "max_positions": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    },
    ignored={
        "auto_map": "names the published code",
        "emb_pooler": "`modules.json` states how tokens are pooled",
        "alibi_starting_size": "the size of a table of the published code",
        "model_max_length": "the tokenizer decides",
    },
)
FLASH_MAP = ConfigMap(
    keys={
        **CLASSIFIER_KEYS,
        "position_embedding_type": "positions",
        "rotary_emb_base": "rope_theta",
        "lora_adaptations": "tasks",
        "lora_rank": "task_rank",
        "lora_alpha": "task_alpha",
    },
    fixed={"truncate_dim": (None,)},
    # The defaults of the configuration's class.
    implied={"model_type": "xlm_roberta_flash", "rope_theta": 10_000.0},
    unsaid=("lora_adaptations", "lora_rank", "lora_alpha", "rotary_emb_base"),
    ignored={
        "auto_map": "names the published code",
        "emb_pooler": "`modules.json` states how tokens are pooled",
        "load_trained_adapters": "whether the file has the updates of the tasks; it has to",
        "lora_dropout_p": "dropout of the updates in training, which zoo does not train",
        "lora_main_params_trainable": "a training setting",
        "matryoshka_dimensions": "sizes at which embeddings may be cut",
        "task_instructions": "prompts of the tasks, if sentence-transformers' files have none",
        "use_flash_attn": "an implementation choice",
        "use_reentrant": "a training setting",
    },
)
CONFIG_MAPS = {
    "jina_bert": V2_MAP,
    "jina_embeddings_v3": V3_MAP,
    "xlm_roberta_flash": FLASH_MAP,
}


def flash_keys(hub: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration of the code of version 3 with a model type of its own.

    Raises:
        VerificationError: it describes tasks that are not computed; the message has the key.
    """
    names = []
    for name in hub.get("architectures") or ():
        names.append(name.replace(XLMR_CLASSES, FLASH_CLASSES, 1))
    own = {**hub, "model_type": "xlm_roberta_flash", "architectures": names}
    tasks = own.get("lora_adaptations")
    if not tasks:
        own.pop("lora_adaptations", None)
        return own
    if not own.get("load_trained_adapters"):
        raise VerificationError(
            f"load_trained_adapters = {own.get('load_trained_adapters')!r} is not implemented "
            "with lora_adaptations",
            "only true is: a file with the updates of the tasks",
        )
    if own.get("type_vocab_size", 1) != 1:
        raise VerificationError(
            f"type_vocab_size = {own['type_vocab_size']!r:.100} is not implemented with "
            "lora_adaptations",
            "only 1 is",
        )
    if not isinstance(tasks, list) or len(set(map(str, tasks))) != len(tasks):
        raise VerificationError(
            f"lora_adaptations = {tasks!r:.100} is not a list of different names"
        )
    own["type_vocab_size"] = len(tasks) + 1
    return own


def published_flash_keys(config: JinaConfig, hub: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of the code of version 3 for those with a model type of its own."""
    published = {**hub, "model_type": "xlm-roberta", "rotary_emb_base": config.rope_theta}
    published.setdefault("auto_map", _flash_code(config))
    if config.tasks:
        published["type_vocab_size"] = 1
        published["lora_adaptations"] = list(config.tasks)
        published["lora_rank"] = config.task_rank
        published["lora_alpha"] = config.task_alpha
        published.setdefault("load_trained_adapters", True)
    return published


def _flash_code(config: JinaConfig) -> dict[str, str]:
    """Return the classes of the code of version 3, as ``auto_map`` names them."""
    model = f"{FLASH_CODE}--modeling_xlm_roberta.{XLMR_CLASSES}"
    classes = {
        "AutoConfig": f"{FLASH_CODE}--configuration_xlm_roberta.{FLASH_CONFIG}",
        "AutoModel": f"{model}Model",
        "AutoModelForMaskedLM": f"{model}ForMaskedLM",
        "AutoModelForSequenceClassification": f"{model}ForSequenceClassification",
    }
    if config.tasks:
        classes["AutoModel"] = f"{FLASH_CODE}--modeling_lora.{XLMR_CLASSES}LoRA"
    return classes


def to_own_keys(hub: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of JinaBERT with a model type of its own in place of ``bert``.

    Raises:
        VerificationError: it describes another encoder; the message has the key.
    """
    required = {"position_embedding_type": ("alibi",), "feed_forward_type": ("geglu", "reglu")}
    for key, values in required.items():
        if hub.get(key) not in values:
            raise VerificationError(
                f"{key} = {hub.get(key)!r:.100} is not implemented",
                f"JinaBERT is read with {' or '.join(values)}",
            )
    code = hub.get("auto_map") or {}
    for reference in code.values() if isinstance(code, dict) else [code]:
        repository, separator, _ = str(reference).partition("--")
        if separator and repository != PUBLISHED_CODE:
            raise VerificationError(
                f"auto_map names the code {repository:.100}, which is not implemented",
                f"only models of {PUBLISHED_CODE} are read",
            )
    return {**hub, "model_type": "jina_bert"}


def _v2(layers: int, width: int, **changes: Any) -> JinaConfig:
    """Return a configuration of version 2, with heads of 64."""
    fields: dict[str, Any] = {**V2_MAP.implied, "vocab_size": 30528, "max_positions": 8192}
    return JinaConfig.sized(layers, width, **{**_unsized(fields), **changes})


def _unsized(fields: dict[str, Any]) -> dict[str, Any]:
    sizes = ("hidden_size", "num_layers", "num_heads", "intermediate_size")
    return {name: value for name, value in fields.items() if name not in sizes}


# Günther et al. 2023, arXiv:2310.19923, table 1; Sturua et al. 2024, arXiv:2409.10173.
SIZES = {
    "tiny": _v2(2, 128, vocab_size=1000, max_positions=512),
    "v2-small": _v2(4, 512, attention_dropout=0.0),
    "v2-base": _v2(12, 768, attention_dropout=0.0),
    "v3": JinaConfig(),
    "v3-tasks": JinaConfig(
        model_type="xlm_roberta_flash",
        tasks=(
            "retrieval.query",
            "retrieval.passage",
            "separation",
            "classification",
            "text-matching",
        ),
        type_vocab_size=6,
    ),
    "reranker-v2": JinaConfig.sized(
        12, 768, model_type="xlm_roberta_flash", positions="absolute", max_positions=1026
    ),
}

"""ERNIE's configuration and the keys of its Hub configuration."""

from zoo.families.config import ConfigMap, same_names
from zoo.families.encoder import CLASSIFIER_KEYS, FIXED, PooledEncoderConfig


class ErnieConfig(PooledEncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of an ERNIE; the defaults are the Hub's."""

    use_task_id: bool = False  # whether an embedding of the task is added, from version 2.0 on
    task_type_vocab_size: int = 3  # number of tasks


CONFIG_MAP = ConfigMap(
    keys={**CLASSIFIER_KEYS, **same_names("use_task_id", "task_type_vocab_size")},
    fixed=FIXED,
)
SIZES = {
    "tiny": ErnieConfig.sized(2, 128, vocab_size=1000, use_task_id=True),
    "3.0-base-zh": ErnieConfig(
        vocab_size=40000,
        max_positions=2048,
        type_vocab_size=4,
        use_task_id=True,
        layer_norm_eps=1e-5,
    ),
}

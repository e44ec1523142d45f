"""Settings that pretraining and fine-tuning share.

Two structs repeat them: msgspec allows no second base with fields, and the base of ``TrainConfig``
is ``Recipe``, which has the settings of a paper and none of a run.
"""

import msgspec

from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.schema import TrainConfig

# settings of one name whose types or defaults differ: epochs instead of steps, tables, own sizes
DIFFERENT = {"data", "eval_steps", "max_steps", "save_steps", "save_total_limit", "size"}


def test_shared_settings_have_the_same_types_and_defaults() -> None:
    fields, others = (
        {field.name: field for field in msgspec.structs.fields(kind)}
        for kind in (FineTuneConfig, TrainConfig)
    )
    shared = fields.keys() & others.keys()
    different = {
        name
        for name in shared
        if (fields[name].type, fields[name].default, fields[name].default_factory)
        != (others[name].type, others[name].default, others[name].default_factory)
    }
    assert different == DIFFERENT

"""The parts of a family's models that adapters change by default."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AdapterTargets:
    """Names of the Hub's modules, or the last parts of their names, as in peft.

    A name that only some models of the family have is ignored for the others.
    """

    low_rank: tuple[str, ...] = ()  # linear maps that LoRA and DoRA change
    rescaled: tuple[str, ...] = ()  # linear maps that (IA)^3 changes
    # those of them whose inputs it scales, and not their outputs
    rescaled_inputs: tuple[str, ...] = ()
    # model types without a decoder after an encoder whose classes on the Hub take past keys and
    # values: in peft, a prefix is that
    prefix_model_types: tuple[str, ...] = ()

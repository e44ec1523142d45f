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


def separate_targets(
    query: str, key: str, value: str, output: str, **options: tuple[str, ...]
) -> AdapterTargets:
    """Return the usual targets of attention with a linear map each for queries, keys and values.

    LoRA changes those of queries and values (Hu et al. 2021, arXiv:2106.09685, section 7.1), and
    (IA)^3 those of keys and values, and the input of the feed-forward network's last one (Liu et
    al. 2022, arXiv:2205.05638, section 3.3).

    Args:
        query, key, value: the maps of attention.
        output: the last map of the feed-forward network.
        **options: other fields of ``AdapterTargets``.
    """
    return AdapterTargets(
        low_rank=(query, value),
        rescaled=(key, value, output),
        rescaled_inputs=(output,),
        **options,
    )


def joint_targets(projection: str, output: str, **options: tuple[str, ...]) -> AdapterTargets:
    """Return the usual targets of attention with one linear map; see ``separate_targets``.

    Args:
        projection: the map to queries, keys and values.
        output: the last map of the feed-forward network.
        **options: other fields of ``AdapterTargets``.
    """
    return AdapterTargets(
        low_rank=(projection,),
        rescaled=(projection, output),
        rescaled_inputs=(output,),
        **options,
    )

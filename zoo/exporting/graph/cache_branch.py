"""The branch of a decoder that computes the keys and values of cross-attention in its first run."""

from dataclasses import replace

import onnx_ir as ir

from zoo.families.onnx import PAST, PAST_SOURCE_TOKENS, PRESENT, USE_CACHE, Axes, OnnxSpec

PREFIX = "first_run."  # of names in the branch, which must differ from the decoder's


def spec_with_branch(decoder: OnnxSpec, first_run: OnnxSpec) -> OnnxSpec:
    """Return names and axes of a decoder with the branch."""
    computed = {name.replace(PRESENT, PAST, 1) for name in first_run.outputs}
    inputs = {
        name: _cached(axes) if name in computed else axes for name, axes in decoder.inputs.items()
    }
    branch: dict[str, Axes] = {**first_run.inputs, USE_CACHE: (1,)}
    return replace(
        decoder, inputs={**inputs, **branch}, outputs={**decoder.outputs, **first_run.outputs}
    )


def _cached(axes: Axes) -> Axes:
    return tuple(PAST_SOURCE_TOKENS if axis == "tokens" else axis for axis in axes)


def add_branch(decoder: ir.Model, first_run: ir.Model) -> None:
    """Add the branch to a decoder, in place."""
    # Readers of exports run one decoder graph for all tokens (``decoder_model_merged.onnx``). In
    # the first run they have no cache and set ``use_cache_branch`` to false. The caches of
    # self-attention are then empty, which the graph reads as it does any other length; only the
    # cache of cross-attention has to be computed of ``encoder_hidden_states``. So the branch holds
    # two matrix products for each block, where graphs of other exporters hold the whole decoder
    # twice.
    graph = decoder.graph
    branch = first_run.graph
    past = {value.name: value for value in graph.inputs}
    cached = [past[str(output.name).replace(PRESENT, PAST, 1)] for output in branch.outputs]
    names = [str(output.name) for output in branch.outputs]
    use_cache = ir.val(USE_CACHE, ir.DataType.BOOL, [1])
    inputs = list(branch.inputs)
    # no value of the branch may have the name of one of the decoder
    for node in branch.all_nodes():
        node.name = f"{PREFIX}{node.name}"
        for value in node.outputs:
            value.name = f"{PREFIX}{value.name}"
    for value in list(branch.initializers.values()):
        value.name = f"{PREFIX}{value.name}"
    uses = [tuple(value.uses()) for value in cached]
    shapes = [value.shape for value in cached]
    for value in cached:
        dims = (dim if isinstance(dim, int) else str(dim.value) for dim in value.shape or ())
        value.shape = ir.Shape(_cached(tuple(dims)))
    nodes = list(branch)
    outputs = list(branch.outputs)
    branch.outputs.clear()
    branch.inputs.clear()
    branch.remove(nodes)
    node = ir.node(
        "If",
        [use_cache],
        attributes={
            "then_branch": _cached_graph(cached),
            "else_branch": ir.Graph([], outputs, nodes=nodes, name="computed"),
        },
        num_outputs=len(names),
    )
    graph.insert_before(graph[0], node)
    for number, output in enumerate(node.outputs):
        output.name = names[number]
        output.type = cached[number].type
        output.shape = shapes[number]
        for user, index in uses[number]:
            user.replace_input_with(index, output)
    graph.inputs.extend([*inputs, use_cache])
    graph.outputs.extend(node.outputs)
    for initializer in list(first_run.graph.initializers.values()):
        first_run.graph.initializers.pop(str(initializer.name))
        graph.register_initializer(initializer)


def _cached_graph(cached: list[ir.Value]) -> ir.Graph:
    """Return the graph of all other runs: the cache as it is."""
    nodes = [ir.node("Identity", [value]) for value in cached]
    for node, value in zip(nodes, cached, strict=True):
        output = node.outputs[0]
        output.name = f"cached.{value.name}"
        output.type = value.type
        output.shape = value.shape
    return ir.Graph([], [node.outputs[0] for node in nodes], nodes=nodes, name="cached")

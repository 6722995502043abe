"""The graph of a model: an image as read goes in, classes and probabilities in its size come out.

| name | shape | what |
|---|---|---|
| `image` | B×C×H×W float32 | images as read, all of one size |
| `eight_bit` | bool, false if left out | whether the file had 8 bits: values are then rounded |
| `classes` | B×H×W uint8 | the likeliest class of each pixel |
| `probabilities` | B×K×H×W float32 | of the classes |
| `members` | B×M×K×R×R float32 | each network's probabilities, in the task's square |
| `prepared` | B×C×R×R float32 | what the networks saw |
"""

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, compose, helper, inliner, numpy_helper
from torch import Tensor, nn

from polyclinic.data.tasks import Task
from polyclinic.exporting import frame
from polyclinic.exporting.frame import DOMAIN, OPSET
from polyclinic.federation.method import Method
from polyclinic.federation.scoring import probabilities
from polyclinic.federation.site import Site

IR_VERSION = 10


class Predicting(nn.Module):
    """What a site does with prepared images, its model being in use."""

    def __init__(self, method: Method, site: Site) -> None:
        super().__init__()
        self.net = site.net  # so that its weights are the graph's
        self.method = method
        self.site = site

    def forward(self, prepared: Tensor) -> Tensor:
        """Give class probabilities (B×K×R×R)."""
        return probabilities(self.method, self.site, prepared)


@torch.no_grad()
def core_of(method: Method, site: Site) -> onnx.ModelProto:
    """The network in use as a graph from `prepared` to `probabilities`, for any batch."""
    task = site.task
    site.net.eval()
    shape = (2, task.channels, task.resolution, task.resolution)
    # exporting specialises on a batch of one; with two the batch stays free
    images = torch.zeros(shape, device=site.device)
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    with _quiet():
        exported = torch.export.export(
            Predicting(method, site).eval(), (images,), dynamic_shapes=dynamic, strict=False
        )
        program = torch.onnx.export(
            exported,
            dynamo=True,
            opset_version=OPSET,
            input_names=["prepared"],
            output_names=["probabilities"],
            verbose=False,
        )
    assert program is not None
    return _bare(program.model_proto)


def whole_graph(task: Task, cores: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """The cores side by side, with the task's preparing before and the way back after them."""
    nodes = [*_before(task)]
    initializers: list[TensorProto] = [numpy_helper.from_array(np.array(False), "eight_bit")]
    masked = task.dark is not None or task.fit != "stretch"
    for number, core in enumerate(cores):
        inner = compose.add_prefix(core, f"member-{number}/").graph
        nodes.append(helper.make_node("Identity", ["prepared"], [inner.input[0].name]))
        nodes += inner.node
        initializers += inner.initializer
        nodes.append(_in_sight(inner.output[0].name, f"sighted-{number}", masked))
        nodes.append(_call("Unsqueeze", [f"sighted-{number}", "second"], [f"single-{number}"], ""))
    nodes += _after(len(cores))
    graph = helper.make_graph(nodes, "polyclinic", _inputs(task), _outputs(task), initializers)
    functions = _needed(nodes)
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=functions)
    model.ir_version = IR_VERSION
    model.producer_name = "polyclinic"
    onnx.checker.check_model(model, full_check=False)
    return model


def _before(task: Task) -> Iterator[onnx.NodeProto]:
    places = ["high", "wide", "top", "left"]
    side = task.resolution
    yield _call("stretched" if task.fit == "stretch" else "padded", ["image"], places, side=side)
    yield _call("resized", ["image", "high", "wide"], ["exact"])
    yield _call("rounded", ["exact", "eight_bit"], ["inner"])
    if task.dark is None:
        yield _call("all_seen", ["inner"], ["inner_seen"])
    else:
        yield _call("bright", ["inner"], ["inner_seen"], dark=task.dark)
    bounds = {"percentile": task.percentiles, "window": task.window}.get(task.normalisation)
    named = dict(zip(("lowest", "highest"), map(float, bounds or ()), strict=bool(bounds)))
    ranged = ["pixels", "offset", "spread"]
    yield _call(task.normalisation, ["inner", "eight_bit"], ranged, DOMAIN, **named)
    yield _call("normalised", ranged, ["normal", "scale"])
    if task.fit == "stretch":
        yield _call("Identity", ["normal"], ["prepared"], "")
        yield _call("Identity", ["inner_seen"], ["seen"], "")
    else:
        given = ["normal", "inner_seen", "offset", "scale", "eight_bit", "top", "left"]
        yield _call("in_square", given, ["prepared", "seen"], side=side, fill=task.fill)
    yield helper.make_node("Constant", [], ["second"], value_ints=[1])


def _in_sight(name: str, sighted: str, masked: bool) -> onnx.NodeProto:
    if not masked:
        return _call("Identity", [name], [sighted], "")
    return _call("in_sight", [name, "seen"], [sighted])


def _after(count: int) -> Iterator[onnx.NodeProto]:
    yield helper.make_node("Concat", [f"single-{n}" for n in range(count)], ["members"], axis=1)
    if count == 1:
        yield _call("Identity", ["sighted-0"], ["mean"], "")
    else:
        yield helper.make_node("ReduceMean", ["members", "second"], ["mean"], keepdims=0)
    given = ["mean", "image", "high", "wide", "top", "left"]
    yield _call("taken_back", given, ["probabilities", "classes"])


def _inputs(task: Task) -> list[onnx.ValueInfoProto]:
    shape: list[str | int | None] = ["B", task.channels, "H", "W"]
    return [
        helper.make_tensor_value_info("image", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("eight_bit", TensorProto.BOOL, []),
    ]


def _outputs(task: Task) -> list[onnx.ValueInfoProto]:
    side, kinds = task.resolution, len(task.classes)
    info = helper.make_tensor_value_info
    return [
        info("classes", TensorProto.UINT8, ["B", "H", "W"]),
        info("probabilities", TensorProto.FLOAT, ["B", kinds, "H", "W"]),
        info("members", TensorProto.FLOAT, ["B", None, kinds, side, side]),
        info("prepared", TensorProto.FLOAT, ["B", task.channels, side, side]),
    ]


def _call(
    name: str, given: Sequence[str], found: Sequence[str], domain: str = DOMAIN, **more: Any
) -> onnx.NodeProto:
    return helper.make_node(name, given, found, domain=domain, **more)


def _needed(nodes: Iterable[onnx.NodeProto]) -> list[onnx.FunctionProto]:
    """The functions that the nodes call, and those that these call."""
    found: dict[str, onnx.FunctionProto] = {}
    waiting = [*nodes]
    while waiting:
        node = waiting.pop()
        if node.domain == DOMAIN and node.op_type not in found:
            function = getattr(frame, node.op_type).to_function_proto()
            found[node.op_type] = function
            waiting += function.node
    return [found[name] for name in sorted(found)]


def _bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without notes on where its nodes come from: they name files of this machine."""
    if model.functions:
        model = inliner.inline_local_functions(model)
    graph = model.graph
    del model.metadata_props[:], graph.metadata_props[:], graph.value_info[:]
    for each in (*graph.node, *graph.input, *graph.output, *graph.initializer):
        del each.metadata_props[:]
        each.doc_string = ""
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporter tells about itself."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logger.setLevel(level)

"""Packages without training: a graph in which what is brighter than half is the last class."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from polyclinic.data.tasks import TASKS, Task
from polyclinic.exporting.frame import OPSET
from polyclinic.exporting.graph import whole_graph
from polyclinic.predict.card import card_page, card_text
from polyclinic.predict.facts import Limit, Member, PackageFacts, QualityFacts, SiteFacts
from polyclinic.predict.package import CARD, GRAPH, PAGE, Package
from polyclinic.predict.quality import BINS

OCTA = TASKS["octa"].with_resolution(32)
EVEN = QualityFacts(
    cases=20,
    split="val",
    histogram=(1 / BINS,) * BINS,
    images=30,
    sizes={"faz": Limit(middle=0.3, limit=0.5)},
    limits={
        "size": Limit(middle=0.2, limit=1.0),
        "flips": Limit(middle=0.0, limit=0.05),
        "image": Limit(middle=0.0, limit=0.2),
    },
)


def bright_core(task: Task, level: float = 0.5) -> onnx.ModelProto:
    """Probabilities from `prepared`: the last class's is a steep sigmoid of the first channel."""
    kinds, sides = len(task.classes), ["B", None, task.resolution, task.resolution]
    nodes = [
        helper.make_node("Slice", ["prepared", "zero", "one", "one"], ["first"]),
        helper.make_node("Sub", ["first", "level"], ["over"]),
        helper.make_node("Mul", ["over", "steep"], ["logit"]),
        helper.make_node("Sigmoid", ["logit"], ["bright"]),
        helper.make_node("Sub", ["full", "bright"], ["dim"]),
        helper.make_node("Mul", ["dim", "none"], ["never"]),
        helper.make_node(
            "Concat", ["dim", *["never"] * (kinds - 2), "bright"], ["probabilities"], axis=1
        ),
    ]
    numbers = {"level": level, "steep": 40.0, "full": 1.0, "none": 0.0}
    given = [numpy_helper.from_array(np.float32(each), name) for name, each in numbers.items()]
    given += [numpy_helper.from_array(np.array([n]), name) for n, name in ((0, "zero"), (1, "one"))]
    given[-1] = numpy_helper.from_array(np.array([1]), "one")
    graph = helper.make_graph(
        nodes,
        "bright",
        [helper.make_tensor_value_info("prepared", TensorProto.FLOAT, sides)],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, sides)],
        given,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def hand_made(
    task: Task = OCTA, *levels: float, quality: QualityFacts | None = EVEN, **changes
) -> Package:
    """A package of one or several such models."""
    levels = levels or (0.5,)
    member = Member(
        study="s",
        study_hash="0" * 64,
        method="FedAvg",
        network="unet",
        seed=0,
        round=3,
        site="north",
        parameters=1000,
    )
    facts = PackageFacts(
        title="bright is faz",
        task=task,
        colours=dict.fromkeys(task.classes[1:], "#ff00d2"),
        members=(member,) * len(levels),
        sites=(SiteFacts(name="north", labels="mask", train=30, val=20, test=9),),
        quality=quality,
        made="2026-11-18T12:00:00+00:00",
        versions={"polyclinic": "0.1.0"},
    ).model_copy(update=changes)
    cores = [bright_core(task, level) for level in levels]
    contents = {
        GRAPH: whole_graph(task, cores).SerializeToString(),
        CARD: card_text(facts).encode(),
        PAGE: card_page(facts).encode(),
    }
    return Package(facts, contents)


def written(folder: Path, *given, **changes) -> Path:
    """The path of such a package."""
    path = folder / "model.polyclinic"
    hand_made(*given, **changes).write(path)
    return path


def disc(size: tuple[int, int], *, levels: int = 255, dtype=np.uint8) -> np.ndarray:
    """An H×W image with a bright ellipse in its middle, in front of a dark slope."""
    rows, columns = (np.linspace(-1, 1, side) for side in size)
    away = np.hypot(rows[:, None] / 0.6, columns / 0.45)
    slope = 0.2 * (rows[:, None] + 1) / 2
    return (np.where(away < 1, 0.9, slope) * levels).astype(dtype)

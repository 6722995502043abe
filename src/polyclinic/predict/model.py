"""A model that predicts, with onnxruntime alone."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from polyclinic.data.preparing import geometry_of
from polyclinic.data.tasks import Task
from polyclinic.masks import Mask
from polyclinic.predict import quality
from polyclinic.predict.package import CARD, GRAPH, Package, PackageError, read_package
from polyclinic.predict.quality import Note

Array = NDArray[Any]
Picture = str | PathLike[str] | Image.Image | Array


@dataclass(frozen=True)
class Prediction:
    """What a model makes of one image (C×H×W): everything in the image's own size."""

    classes: Mask  # H×W
    probabilities: NDArray[np.float32]  # K×H×W
    note: Note


class Model:
    """A loaded package; `predict` gives a mask, `look` all there is to know about an image."""

    def __init__(self, package: Package, *, threads: int = 0) -> None:
        self.package = package
        self.facts = package.facts
        self._session = _session(package.contents[GRAPH], threads)

    @property
    def task(self) -> Task:
        """What the model segments."""
        return self.facts.task

    @property
    def card(self) -> str:
        """The model card, in Markdown."""
        return self.package.contents[CARD].decode()

    def predict(self, image: Picture) -> Mask:
        """The likeliest class of every pixel, in the size and order of the image as it was given.

        An image is a path, a PIL image, or an array: H×W, H×W×C or C×H×W; the file of a volume
        gives a mask for each of its slices.
        """
        from polyclinic.predict.inputs import opened

        facts = self.facts
        scan = opened(image, self.task.channels, facts.axis, window=facts.stored_window)
        return scan.in_own_order(np.stack([self.classes(each) for each in scan.slices()]))

    def classes(self, image: Array) -> Mask:
        """The class map (H×W) of one image as read (C×H×W, uint8 or float32)."""
        return self._run(image, ["classes"])[0]

    def look(self, image: Array, *, flips: bool = True) -> Prediction:
        """The prediction for one image as read (C×H×W, uint8 or float32), with a note on it."""
        names = ["classes", "probabilities", "members", "prepared"]
        classes, probabilities, members, prepared = self._run(image, names)
        task = self.task
        common = members.mean(axis=0) if len(members) > 1 else members[0]
        mean = quality.likeliest(common)
        axes = (1, 2) if flips else ()
        turned = [np.flip(self.classes(np.flip(image, axis)), axis - 1) for axis in axes]
        own = list(map(quality.likeliest, members))
        apart = quality.disagreements(mean, common, (classes, turned), own, task)
        shares, pixels = quality.sizes(mean, task), quality.histogram(prepared, task)
        note = quality.judge(self.facts.quality, shares, pixels, apart)
        return Prediction(classes, probabilities, note)

    def square(self, image: Array) -> tuple[Mask, NDArray[np.float32]]:
        """The class map in the task's square (R×R), as runs score it, and what the network saw."""
        members, prepared = self._run(image, ["members", "prepared"])
        common = members.mean(axis=0) if len(members) > 1 else members[0]
        return quality.likeliest(common), prepared

    def _run(self, image: Array, names: list[str]) -> list[Any]:
        """These outputs of the graph for the image's content, brought to the size of the image."""
        if image.ndim != 3 or image.shape[0] != self.task.channels or 0 in image.shape:
            raise ValueError(
                f"an image of the task {self.task.name} is {self.task.channels}×H×W, "
                f"not {'×'.join(map(str, image.shape))}"
            )
        box = geometry_of(image, self.task).box
        content = np.ascontiguousarray(image[:, *box.within], dtype=np.float32)[None]
        eight_bit = np.array(image.dtype == np.uint8)
        found = self._session.run(names, {"image": content, "eight_bit": eight_bit})
        whole = box.size == image.shape[1:]
        return [
            each[0] if whole else _in_image(name, each[0], image.shape[1:], box)
            for name, each in zip(names, found, strict=True)
        ]


def load(path: str | PathLike[str], *, task: str | None = None, threads: int = 0) -> Model:
    """The model in a package; PackageError where it is damaged, too new, or of another task.

    With 0 threads onnxruntime takes as many as it likes.
    """
    return Model(read_package(Path(path), task), threads=threads)


def _session(graph: bytes, threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise PackageError(
            "models run with onnxruntime: pip install 'polyclinic[predict]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # it warns of the optional input
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise PackageError(f"onnxruntime cannot run this model: {error}") from error


def _in_image(name: str, found: Array, size: tuple[int, ...], box: Any) -> Array:
    """An output for an image's content as one for the whole image, background around it."""
    if name in ("members", "prepared"):
        return found
    whole = np.zeros((*found.shape[:-2], *size), dtype=found.dtype)
    if name == "probabilities":
        whole[0] = 1
    whole[..., *box.within] = found
    return whole

"""A site's final model, straight from the folder of its run."""

from dataclasses import dataclass
from os import PathLike
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from polyclinic.config import Tables
from polyclinic.data.cases import Cases, SiteData
from polyclinic.data.preparing import Prepared, prepare
from polyclinic.data.site_files import SiteToml
from polyclinic.data.tasks import Task
from polyclinic.engine.devices import device_of
from polyclinic.engine.run import assignment_of
from polyclinic.engine.site_runner import SiteRunner
from polyclinic.engine.states import read_state
from polyclinic.engine.unseen import finished_run
from polyclinic.exporting.choosing import Origin
from polyclinic.exporting.trained import as_at_its_site
from polyclinic.federation.method import Method
from polyclinic.federation.scoring import predictions
from polyclinic.federation.site import Site
from polyclinic.masks import UNLABELLED, Mask
from polyclinic.predict.inputs import opened
from polyclinic.runs import RunFolder


@dataclass(frozen=True)
class Model:
    """The model that a site uses in the end; `predict` gives a mask."""

    task: Task
    """What is segmented, with the site's own way to prepare images."""
    method: Method
    """The method, which knows how to predict."""
    site: Site
    """The site, whose network has the final weights."""
    reading: SiteToml
    """How the site reads volumes."""

    def predict(self, image: str | PathLike[str] | Image.Image | NDArray[Any]) -> Mask:
        """The class of every pixel, in the size and order of the image as it was given.

        An image is a path, a PIL image, or an array: H×W, H×W×C or C×H×W; the file of a volume
        gives a mask for each of its slices.
        """
        axis, window = self.reading.axis, self.reading.stored_window
        scan = opened(image, self.task.channels, axis, window=window)
        masks = [self.probabilities(each).argmax(axis=0) for each in scan.slices()]
        return scan.in_own_order(np.stack(masks).astype(np.uint8))

    def probabilities(self, image: NDArray[Any]) -> NDArray[np.float32]:
        """Class probabilities (K×H×W) of one image as read (C×H×W, uint8 or float32)."""
        prepared = prepare(image, self.task)
        with self.method.in_use(self.site):
            (found,) = predictions(self.method, self.site, _one_case(prepared))
        return prepared.geometry.probabilities_back(found[0].cpu().numpy())

    def __repr__(self) -> str:
        title = self.method.title or type(self.method).__name__
        return f"<Model of {self.site.info.name} by {title} for {self.task.name}>"


def model_of(folder: RunFolder, name: str, tables: Tables) -> Model:
    """The final model of a site in a finished run."""
    run = finished_run(folder, tables)
    runner = SiteRunner(assignment_of(run, folder.about().sites), device_of("auto"))
    info = next(each for each in runner.assignment.sites if each.name == name)
    nothing = cast(SiteData, None)  # a site that only predicts needs no cases of its own
    state, _ = read_state(folder.weights_path(name))
    site = runner.opened(info, nothing, state)
    task, reading = as_at_its_site(Origin(run, name))
    return Model(task, runner.assignment.method, site, reading)


def _one_case(image: Prepared) -> Cases:
    nothing = torch.full((1, *image.pixels.shape[1:]), UNLABELLED, dtype=torch.uint8)
    return Cases(
        names=("image",),
        patients=("image",),
        images=torch.from_numpy(image.pixels[None]),
        labels=nothing,
        masks=nothing,
        offset=torch.from_numpy(image.offset[None]),
        scale=torch.from_numpy(image.scale[None]),
        spacing=torch.ones(1, 2, dtype=torch.float64),
        views=None if image.view is None else torch.from_numpy(image.view[None]),
    )

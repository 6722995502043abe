"""The final models of a run: named weights and memory, and what they are models of."""

from __future__ import annotations

from polyclinic.engine.site_runner import Assignment
from polyclinic.engine.states import SiteState
from polyclinic.engine.tensors import nested, save_tensors
from polyclinic.runs import RunFolder


def keep_model(
    run: RunFolder, owner: str, title: str, state: SiteState, assignment: Assignment
) -> None:
    """Write the model of a site, or of the server, into the run folder."""
    texts = {"method": title, "network": assignment.network.name, "task": assignment.task.name}
    tensors = nested(weights=state.weights, memory=state.memory)
    save_tensors(run.weights_path(owner), tensors, texts)

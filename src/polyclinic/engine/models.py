"""The final models of a run: named weights and memory, and what they are models of."""

from polyclinic.engine.run import Assignment
from polyclinic.engine.states import SiteState, tensors_of
from polyclinic.engine.tensors import save_tensors
from polyclinic.federation.server import Server
from polyclinic.runs import Finished, RunFolder

END = "end"  # the end of the run among the texts of the server's model


def keep_model(
    run: RunFolder,
    owner: str,
    title: str,
    state: SiteState | Server,
    assignment: Assignment,
    end: Finished | None = None,
) -> None:
    """Write the model of a site, or of the server with the end of the run, into the run folder."""
    texts = {"method": title, "network": assignment.network.name, "task": assignment.task.name}
    if end is not None:
        texts[END] = end.model_dump_json()
    save_tensors(run.weights_path(owner), tensors_of(state), texts)

"""A run folder that is taken up again: what is left of it, what was lost, and how to go on."""

from collections.abc import Generator

from polyclinic.engine.checkpoint import Checkpoint
from polyclinic.engine.loop import Event, Notice
from polyclinic.engine.models import END
from polyclinic.engine.tensors import load_tensors
from polyclinic.federation.server import Server
from polyclinic.runs import About, Finished, RunError, RunFolder


def recover(
    folder: RunFolder, checkpoint: Checkpoint, server: Server, about: About
) -> Generator[Event, None, bool]:
    """Make a folder ready to go on from its checkpoint; True where the run was finished.

    Only what holds no finished round is cleared; otherwise an error says what to do.
    """
    if checkpoint.exists:
        folder.forget_after(checkpoint.load(server).round)
        try:
            folder.about()
        except RunError as error:
            folder.write_about(about)
            yield Notice(f"{error}; it is written again")
    elif folder.exists:
        end = _lost_end(folder)
        if end is not None:
            folder.finish(end)
            yield Notice(f"{folder.path / 'finished.json'} was lost; it is written again")
            return True
        folder.clear()
    return False


def _lost_end(folder: RunFolder) -> Finished | None:
    """The end of a run without checkpoint and without finished.json; None where it just began.

    An error says what to do where rounds were finished and neither is left of them.
    """
    file = folder.weights_path("server")
    if file.exists() and END in (texts := load_tensors(file)[1]):
        return Finished.model_validate_json(texts[END])
    if file.exists() or any(line.round > 0 for line in folder.rounds()):
        raise RunError(
            f"{folder.path} holds finished rounds, but its checkpoint is lost; bring the folder "
            "`checkpoint` back from a backup, or start afresh with --fresh"
        )
    return None

"""The state that a site's work starts from: the one the server believes in, of the same study."""

from polyclinic.engine.flower.open_runs import SiteRun
from polyclinic.engine.flower.protocol import NO_STATE, VisitRequest
from polyclinic.engine.states import SiteState
from polyclinic.engine.tensors import DamagedFile

ADVICE = "Bring it back from a backup, or start the study with --fresh"


class StateMismatch(ValueError):
    """The server believes in a state that this site does not have."""

    refuses = "state"


def state_to_start(
    run: SiteRun, request: VisitRequest, study: str
) -> tuple[SiteState | None, dict[str, str] | None]:
    """The state to start from, and what is noted about it; None before the first visit.

    `study` is the hash of the study that the request is of.
    """
    if request.reads == NO_STATE:
        return None, None
    site = run.data.name
    states = run.states(request.run)
    present = states.rounds(site)
    if request.reads in present:
        try:
            state, note = states.read(site, request.reads)
        except DamagedFile as error:
            raise StateMismatch(f"{error}. {ADVICE}") from error
        if note.get("run") == request.run:
            if note.get("study") != study:
                raise StateMismatch(
                    "the settings of the study are not those with which the state began. "
                    "Bring them back, or start the study with --fresh"
                )
            return state, note
    raise StateMismatch(
        f"site {site} does not have the state that the server believes in (version "
        f"{request.reads}; it has {', '.join(map(str, present)) or 'none'}): its state folder "
        f"was lost or replaced. {ADVICE}"
    )

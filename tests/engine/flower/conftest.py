import pytest

from polyclinic.engine.flower import transport


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    """Sites in this process have answered before anybody looks, so nobody waits to look again."""
    monkeypatch.setattr(transport, "PAUSE", 0.01)

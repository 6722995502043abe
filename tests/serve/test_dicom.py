"""Images sent over DICOM are answered with segmentations, sent over DICOM."""

from contextlib import contextmanager
from queue import Queue

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.uid import MRImageStorage, SegmentationStorage
from pynetdicom import AE, evt

from polyclinic.data.formats.reading import stacks_of
from polyclinic.data.formats.segmentation import read_segmentation
from polyclinic.predict import load
from polyclinic.serve.dicom_node import Listening, Node, dicom_node, node_called
from tests.data.volumes import plain_dicom, write_series
from tests.predict.hand_made import disc, written

HERE = "127.0.0.1"
BIG = 4000


@pytest.fixture
def model(tmp_path):
    return load(written(tmp_path), threads=1)


@contextmanager
def archive(status=0x0000):
    """A node that keeps segmentations, and the queue into which it puts them."""
    kept = Queue()

    def store(event):
        kept.put(event.encoded_dataset())
        return status

    entity = AE(ae_title="ARCHIVE")
    entity.add_supported_context(SegmentationStorage)
    server = entity.start_server((HERE, 0), block=False, evt_handlers=[(evt.EVT_C_STORE, store)])
    try:
        yield Node("ARCHIVE", HERE, server.socket.getsockname()[1]), kept
    finally:
        server.shutdown()


@contextmanager
def listening(model, to, **options):
    """The port of the node, and a queue of what it says."""
    said = Queue()
    with dicom_node(model, Listening(HERE, 0, **options), to, said.put, flips=False) as port:
        yield port, said


@contextmanager
def scanner(port, called="POLYCLINIC"):
    """An association with the node."""
    entity = AE(ae_title="SCANNER")
    entity.add_requested_context(MRImageStorage)
    link = entity.associate(HERE, port, ae_title=called)
    try:
        yield link
    finally:
        if link.is_established:
            link.release()


def series(folder):
    frames = [disc((32, 24), levels=BIG, dtype=np.uint16) // (n + 1) for n in range(3)]
    return write_series(folder, frames, spacing=(0.5, 0.8))


def test_a_series_is_answered_with_a_segmentation_of_it(model, tmp_path):
    files = series(tmp_path / "scan")
    with archive() as (to, kept), listening(model, to) as (port, said):
        with scanner(port) as link:
            assert [link.send_c_store(dcmread(file)).Status for file in files] == [0, 0, 0]
        content = kept.get(timeout=120)
        assert said.get(timeout=120).startswith("a series of 3 answered to ARCHIVE")
    (tmp_path / "mask.dcm").write_bytes(content)
    found, source = dcmread(tmp_path / "mask.dcm"), dcmread(files[0])
    assert found.SOPClassUID == SegmentationStorage
    assert found.StudyInstanceUID == source.StudyInstanceUID
    assert found.PatientID == source.PatientID
    (stack,), _ = stacks_of(files)
    volume = stack.read()
    masks = read_segmentation(tmp_path / "mask.dcm", volume, stack.instances)
    expected = np.stack([model.classes(image) for image in volume.voxels])
    assert masks.any()
    assert (masks == expected).all()


def test_the_next_study_is_answered_whatever_the_first_was(model, tmp_path):
    broken = plain_dicom(disc((30, 26)))
    broken.Rows = 2000  # more than it has
    (good,) = write_series(tmp_path / "scan", [disc((30, 26), levels=BIG, dtype=np.uint16)])
    with archive() as (to, kept), listening(model, to, megabytes=0.01) as (port, said):
        with scanner(port) as link:
            assert link.send_c_store(broken).Status == 0
        assert "without an answer: it" in said.get(timeout=120)
        with scanner(port) as link:
            large = plain_dicom(disc((200, 200)))
            assert link.send_c_store(large).Status == 0xA700
        assert said.get(timeout=120) == "refused an object of 0 MB from SCANNER"
        with scanner(port) as link:
            link.send_c_store(dcmread(good))
            link.abort()
        assert said.get(timeout=120) == "SCANNER broke off; what it had sent is dropped"
        assert kept.empty()
        with scanner(port) as link:
            link.send_c_store(dcmread(good))
        assert kept.get(timeout=120)


# pynetdicom leaves a socket to the collector where nobody answers.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_an_archive_that_does_not_take_it_is_named(model, tmp_path):
    (file,) = write_series(tmp_path / "scan", [disc((30, 26), levels=BIG, dtype=np.uint16)])
    with archive(status=0xA700) as (to, _), listening(model, to) as (port, said):
        with scanner(port) as link:
            link.send_c_store(dcmread(file))
        assert said.get(timeout=120).endswith("ARCHIVE answered 0xA700 and did not keep it")
    nobody = Node("ARCHIVE", HERE, to.port)
    with listening(model, nobody) as (port, said):
        with scanner(port) as link:
            link.send_c_store(dcmread(file))
        assert said.get(timeout=120).endswith(f"ARCHIVE@127.0.0.1:{to.port} does not answer")


def test_only_those_who_are_named_may_send_and_only_to_this_title(model):
    to = Node("ARCHIVE", HERE, 1)
    with listening(model, to, callers=("OTHER",)) as (port, _), scanner(port) as link:
        assert link.is_rejected
    with listening(model, to) as (port, _), scanner(port, "ELSE") as link:
        assert link.is_rejected


def test_nodes_are_written_as_title_host_and_port():
    assert node_called("PACS@10.0.0.5:104") == Node("PACS", "10.0.0.5", 104)
    assert node_called("MY PACS@[::1]:104") == Node("MY PACS", "::1", 104)
    for text in ("PACS", "@h:1", "P@h", "P@h:0", "P@h:70000", "A TITLE TOO LONG!@h:1"):
        with pytest.raises(ValueError, match="write AE@host:port"):
            node_called(text)

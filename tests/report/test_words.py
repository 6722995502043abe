import pytest

from polyclinic.report.words import amount, count, duration, enumeration, size


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (43_530_336, "43.5 MB"), (999_600, "1.00 MB"),
     (123_456_789, "123 MB"), (8.7e9, "8.70 GB"), (1e17, "100000 TB")],
)  # fmt: skip
def test_bytes_have_three_digits_and_a_prefix(number, text):
    assert size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.123, "0.12 s"), (9.999, "10.0 s"), (11.74, "11.7 s"), (59.99, "1 min 0 s"),
     (184.2, "3 min 4 s"), (3599.7, "1 h 0 min"), (7260, "2 h 1 min")],
)  # fmt: skip
def test_durations_are_said_as_people_do(seconds, text):
    assert duration(seconds) == text


def test_counts_and_lists_are_said_as_people_do():
    assert count(1813474) == "1\u2009813\u2009474"
    assert amount(1, "thread") == "1 thread"
    assert amount(2, "thread") == "2 threads"
    assert enumeration(["a"]) == "a"
    assert enumeration(["a", "b", "c"]) == "a, b and c"

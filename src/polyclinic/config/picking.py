"""Some rows of a study, picked by their titles."""

from collections.abc import Sequence
from pathlib import Path

from polyclinic.config.chosen import MethodChoice
from polyclinic.config.mistakes import ConfigError, unknown
from polyclinic.config.printing import literal
from polyclinic.config.study import Study


def only_methods(study: Study, titles: Sequence[str], source: Path | str) -> Study:
    """The study with the methods of these titles alone; all of them where none is given.

    A title without its bracket picks every method that differs in what stands there.
    """
    if not titles:
        return study
    studies = study.swept or (study,)
    rows = [row for each in studies for row in each.method]
    known = dict.fromkeys(row.title for row in rows)
    problem = "is the title of no method of this study"
    wrong = [title for title in titles if not any(_picks(title, row) for row in rows)]
    if wrong:
        raise ConfigError(
            source, [unknown("--only", problem, literal(title), title, known) for title in wrong]
        )

    def picked(each: Study) -> Study:
        found = [row for row in each.method if any(_picks(title, row) for title in titles)]
        return each.model_copy(update={"method": tuple(found)})

    if not study.swept:
        return picked(study)
    return study.model_copy(update={"swept": tuple(map(picked, study.swept))})


def _picks(title: str, row: MethodChoice) -> bool:
    return row.title == title or row.title.startswith(f"{title} (")

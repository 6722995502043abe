"""What all figures have in common: colours of the methods, type, lines and the way to SVG."""

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from polyclinic.predict.pages import data_uri

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 12.0  # inches of a figure as wide as the page
_PAGE_FINE = 120  # pixels an inch of what is a picture inside a drawing of the page

# Okabe and Ito's colours, which colour-blind readers can tell apart, without black and yellow.
_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#5c6470",
    "#8c510a",
)
_DASHES = ("", "5 2", "1.5 1.5", "6 2 1.5 2")
_PAGE_FONTS = "'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"
_INK, _QUIET, _GRID = "#1f2733", "#5b6675", "#e6e9ee"


@dataclass(frozen=True)
class Style:
    """The look of a method in every figure; after eight methods the dashes change."""

    colour: str
    dashes: str

    @property
    def line(self) -> dict[str, Any]:
        """Arguments for a line of this method."""
        pattern = tuple(float(length) for length in self.dashes.split())
        return {"color": self.colour, "linestyle": (0, pattern) if pattern else "-"}


def marker(index: int) -> str:
    """The shape of a method's points, which tells apart those of the same colour."""
    return "osD^v<>P"[index // len(_COLOURS) % 8]


def style(index: int) -> Style:
    """The look of the method with this number in the comparison."""
    return Style(_COLOURS[index % len(_COLOURS)], _DASHES[index // len(_COLOURS) % len(_DASHES)])


@dataclass(frozen=True)
class Margins:
    """Inches around a grid of panels and between them."""

    left: float = 0.55
    right: float = 0.1
    top: float = 0.3
    bottom: float = 0.45
    across: float = 0.2
    down: float = 0.35


PANEL_MARGINS = Margins()


@contextmanager
def canvas(
    rows: int,
    columns: int,
    size: tuple[float, float],
    margins: Margins = PANEL_MARGINS,
    **sharing: Any,
) -> Iterator[tuple["Figure", list[list["Axes"]]]]:
    """A figure of so many inches with its grid of axes, drawn in the style of the page.

    Margins are given because fitting them to the text takes longer than all the drawing.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    width, height = size
    panel_width = (width - margins.left - margins.right - (columns - 1) * margins.across) / columns
    panel_height = (height - margins.top - margins.bottom - (rows - 1) * margins.down) / rows
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=size)
        axes = figure.subplots(rows, columns, squeeze=False, **sharing)
        figure.subplots_adjust(
            left=margins.left / width,
            right=1 - margins.right / width,
            top=1 - margins.top / height,
            bottom=margins.bottom / height,
            wspace=margins.across / panel_width,
            hspace=margins.down / panel_height,
        )
        yield figure, axes.tolist()


@contextmanager
def panels(
    titles: Sequence[str], most: int, height: float, margins: Margins = PANEL_MARGINS
) -> Iterator[tuple["Figure", list["Axes"]]]:
    """A figure with a panel for each title, at most so many in a row of so many inches."""
    rows = math.ceil(len(titles) / most)
    columns = math.ceil(len(titles) / rows)
    size = (WIDTH, rows * height)
    with canvas(rows, columns, size, margins, sharex=True, sharey=True) as (figure, axes):
        found = [panel for row in axes for panel in row]
        for panel, title in zip(found, titles, strict=False):
            quiet_title(panel, title)
        for panel in found[len(titles) :]:
            panel.set_axis_off()
        yield figure, found[: len(titles)]


Form = Literal["svg", "pdf", "png"]
FORMS: tuple[Form, ...] = get_args(Form)


class Drawing(str):
    """The address of a figure, which is an SVG as a whole; `file` gives it in other forms."""

    figure: "Figure"

    def add_legend(self, titles: Sequence[str]) -> None:
        """Name the methods below the figure, for where there is no page to do so."""
        from matplotlib.lines import Line2D

        lines = [
            Line2D([], [], label=shortened(title), **style(index).line)
            for index, title in enumerate(titles)
        ]
        columns = min(len(lines), max(1, round(self.figure.get_figwidth() / 2)))
        self.figure.legend(
            handles=lines,
            ncols=columns,
            frameon=False,
            fontsize=8,
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
        )

    def file(self, form: Form | Literal["jpg"], fine: int = 200) -> bytes:
        """The figure as a file; pictures are on white, with so many pixels an inch."""
        import matplotlib as mpl

        target = io.BytesIO()
        known: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
        with warnings.catch_warnings(), mpl.rc_context(_SETTINGS):
            # The reader's browser has the glyphs that the font used for measuring may lack.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            paper = "white" if form in ("png", "jpg") else "none"
            edge = "tight" if self.figure.legends else None
            self.figure.savefig(
                target,
                format=form,
                dpi=fine,
                metadata=known or None,
                facecolor=paper,
                bbox_inches=edge,
            )
        content = target.getvalue()
        # Only an SVG takes the reader's fonts; the bytes of a PDF must stay where they are.
        if form == "svg":
            content = content.replace(b"'DejaVu Sans'", _PAGE_FONTS.encode())
        return content


def to_data_uri(figure: "Figure", *, photographs: bool = False) -> Drawing:
    """The figure as an SVG with real text, ready for the source of an image.

    One of many `photographs` is a JPEG there, which is a tenth as large.
    """
    drawing = Drawing()
    drawing.figure = figure
    content = drawing.file("jpg" if photographs else "svg", fine=_PAGE_FINE)
    address = Drawing(data_uri("image/jpeg" if photographs else "image/svg+xml", content))
    address.figure = figure
    return address


def quiet_title(axes: "Axes", text: str) -> None:
    """A small heading at the left of a panel."""
    axes.set_title(text, loc="left", fontsize=9.5, color=_INK, fontweight="bold")


def count_rounds(panel: "Axes") -> None:
    """Name the horizontal axis of a panel and tick it at whole rounds."""
    from matplotlib.ticker import MaxNLocator

    panel.set_xlabel("round")
    low, high = panel.get_xlim()
    if high - low < 1:  # a single round
        panel.set_xlim(low - 0.5, high + 0.5)
    ticks = MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)
    panel.xaxis.set_major_locator(ticks)


def shortened(text: str, most: int = 26) -> str:
    """A name cut to what fits beside a panel."""
    return text if len(text) <= most else text[: most - 1] + "…"


_SETTINGS: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "svg.hashsalt": "polyclinic",
    "pdf.fonttype": 42,  # text stays text
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#b8c0cb",
    "axes.labelcolor": _QUIET,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.color": _QUIET,
    "ytick.color": _QUIET,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}

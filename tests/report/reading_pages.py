import base64
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "img", "line", "br", "link", "input", "hr"}


@dataclass
class Cell:
    text: str = ""
    spread: str = ""
    bold: bool = False
    underlined: bool = False
    near: bool = False
    marks: list = field(default_factory=list)


class Page(HTMLParser):
    """What a test wants to know of a page: its tables, sections, images, links and text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tables, self.ids = [], [], []
        self.images, self.links, self.texts, self.tags = [], [], [], set()
        self.unclosed, self.scripts = [], []
        self.feed(html)
        self.close()
        self.unclosed += self.open
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.add(tag)
        if tag == "script":
            self.scripts.append(found)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "img":
            self.images.append((found.get("alt"), found["src"]))
        if tag == "a":
            self.links.append((found.get("download"), found["href"]))
        if tag == "table":
            self.tables.append((found["class"].split()[0], []))
        if tag == "tr":
            self.tables[-1][1].append([])
        if tag in ("td", "th"):
            self.tables[-1][1][-1].append(Cell())
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if self.open[-1] != tag:
            self.unclosed.append(tag)
        else:
            self.open.pop()

    def handle_data(self, text):
        if "style" in self.open or "script" in self.open:
            return
        self.texts.append(text)
        if "td" in self.open or "th" in self.open:
            cell = self.tables[-1][1][-1][-1]
            cell.bold |= "b" in self.open
            cell.underlined |= "u" in self.open
            if "sup" in self.open:
                cell.near = True
            elif "small" in self.open:
                cell.spread += text.strip("±\u2009 ")
            else:
                cell.text += text.strip()

    def scores(self, number):
        """The rows of a table of scores below its heads: title and cells by position."""
        rows = [rows for kind, rows in self.tables if kind == "scores"][number]
        return {row[0].text: row[1:] for row in rows if row[0].text not in ("", "Method")}


def texts(uri):
    """All words of a figure, which must be a well-formed SVG in a data URI."""
    kind, _, content = uri.partition(",")
    assert kind == "data:image/svg+xml;base64"
    root = ElementTree.fromstring(base64.b64decode(content))
    return [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]

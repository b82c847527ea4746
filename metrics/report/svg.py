"""Converts figures to SVG: files for documents, and elements of a page that take its colours, light or dark.

Text stays text, in the font of the reader. Matplotlib lays figures out for DejaVu Sans, which is wider than most fonts,
so labels that do not touch in it do not touch in other fonts either.
"""

import io
import re
from html import escape
from typing import Any, Final

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from metrics.foreign_text import printable
from metrics.report.canvas import in_readers_font
from metrics.report.palette import PALETTE

_FONT = '"DejaVu Sans", Verdana, sans-serif'
_VARIABLES: Final = {light: f"var(--{name})" for name, (light, _) in PALETTE.items()}
_TAG = re.compile(r"<[^>]*>")
_MARKERS = re.compile(r"(?:<use [^>]*/>){2,}")
_STYLE = re.compile(r' style="[^"]*"')
_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_NO_XML = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that are not allowed in XML documents, such as most control characters."""
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")


def to_svg(canvas: Canvas) -> str:
    """Return a figure as an SVG document, in the light colours. The same figure gives the same text."""
    written, dpi = io.StringIO(), canvas.dpi
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    for label in canvas.findobj(Text):
        assert isinstance(label, Text)
        label.set_text(printable(label.get_text()))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "trellis"}), in_readers_font():
        writer: Any = FigureCanvasSVG(canvas)  # which has no types
        writer.print_svg(written, metadata=nothing)  # ``savefig`` would draw a figure with a layout twice
    canvas.dpi = dpi
    return _shrink(_visible(written.getvalue()[written.getvalue().index("<svg") :]))


def _visible(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)


def _shrink(svg: str) -> str:
    """Remove what no reader sees: names of groups, hundredths of pixels, the list of fonts at every label."""
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r">\s*\n\s*<", "><", svg).replace("xlink:href=", "href=")
    used = dict.fromkeys(re.findall(r'(?:href="|url\()#(\w+)', svg))
    short = {name: f"i{place}" for place, name in enumerate(used)}
    svg = re.sub(r' id="([^"]+)"', lambda found: f' id="{short[found[1]]}"' if found[1] in short else "", svg)
    svg = re.sub(r'(href="|url\()#(\w+)', lambda found: f"{found[1]}#{short[found[2]]}", svg)
    svg = _MARKERS.sub(_share_style, _TAG.sub(_shrink_tag, svg))
    return svg.replace("<svg ", f"<svg style='font-family: {_FONT}; stroke-linejoin: round' ", 1)


def _share_style(markers: re.Match[str]) -> str:
    """Write the style of equal markers once."""
    styles = set(_STYLE.findall(markers[0]))
    return f"<g{styles.pop()}>{_STYLE.sub('', markers[0])}</g>" if len(styles) == 1 else markers[0]


def _shrink_tag(tag: re.Match[str]) -> str:
    text = re.sub(r"\s+", " ", tag[0])
    text = re.sub(r"font-family: [^;\"]*; |( transform=\"rotate\(-?0 [^\"]*\")", "", text)
    return re.sub(r" ?([MLQCz]) ?(?=[-\d\"])", r"\1", _NUMBER.sub(_round, text))


def _round(number: re.Match[str]) -> str:
    value = float(number[0])
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 1 else f"{value:.2g}"


def to_element(svg: str, name: str, text: str) -> str:
    """Return a figure as an element of an HTML page that defines ``palette_css``.

    Args:
        svg: ``to_svg``.
        name: unique in the page; the names inside the figure begin with it.
        text: describes the figure for readers who do not see it.
    """
    svg = re.sub(r'(id="|href="#|url\(#)(\w+)', rf"\g<1>{name}-\g<2>", svg)
    svg = _TAG.sub(lambda tag: _COLOUR.sub(lambda colour: _VARIABLES.get(colour[0], colour[0]), tag[0]), svg)
    box = re.search(r'viewBox="[^"]*"', svg)
    inside = svg[svg.index(">") + 1 :].strip()
    view = box[0] if box else ""
    return f'<svg {view} role="img" aria-label="{escape(_visible(text))}" style="stroke-linejoin: round">{inside}'

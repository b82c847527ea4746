"""The chapters and figures of the report: first the ones of Trellis, then those of plugins (``peer.plugins``)."""

from typing import Final

from metrics.measures.registry import MEASURES
from metrics.report.figures import network, overlay, results
from metrics.report.figures.chapter import Chapter
from peer.plugins import PluginError, add_extensions, added, name_is_taken

_OWN: Final = {chapter.name: chapter for chapter in (results.CHAPTER, overlay.CHAPTER, network.CHAPTER)}

CHAPTERS: Final = tuple(add_extensions(_OWN, "figures", Chapter).values())
"""The chapters in the order of the report."""

FIGURES: Final = tuple(figure for chapter in CHAPTERS for figure in chapter.figures)


def _check_chapters() -> None:
    """Refuse chapters of plugins with the name of another figure, or with numbers that are not measures.

    Raises:
        PluginError: there is such a chapter.
    """
    names = [figure.name for figure in FIGURES]
    for plugin, chapter in added("figures", Chapter):
        for figure in chapter.figures:
            if names.count(figure.name) > 1:
                raise name_is_taken(plugin, figure.name)
        for number in chapter.numbers:
            if number not in MEASURES:
                raise PluginError(f"{plugin.shown}: the chapter {chapter.name!r} has the unknown measure {number!r}")


_check_chapters()

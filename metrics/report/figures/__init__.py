"""The report's figures: each takes a finished run and draws one answer.

A figure never computes a new measure: it shows columns of the tables, so that every curve can be checked with a query.
"""

from typing import Final

from metrics.report.figures import network, overlay, results
from metrics.report.figures.chapter import Chapter, Drawing, Figure

__all__ = ["CHAPTERS", "FIGURES", "Chapter", "Drawing", "Figure"]

CHAPTERS: Final = (results.CHAPTER, overlay.CHAPTER, network.CHAPTER)
"""In the order of the report."""

FIGURES: Final = tuple(figure for chapter in CHAPTERS for figure in chapter.figures)

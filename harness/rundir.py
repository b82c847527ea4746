"""The run directory's documents, under the harness's name: one definition, which the analysis shares."""

from metrics.rundata import Check, FinalState, Manifest, Phase, Summary

__all__ = ["Check", "FinalState", "Manifest", "Phase", "Summary"]

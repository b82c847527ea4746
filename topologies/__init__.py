"""Underlays as data: latency matrices, their generators, importers and exporters."""

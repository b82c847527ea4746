"""Underlays as pure descriptions: latency matrices, their generators, importers and exporters."""

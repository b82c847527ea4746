"""Overlays: who a node's neighbours are."""

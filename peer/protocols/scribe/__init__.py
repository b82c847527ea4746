"""Scribe: multicast trees over Pastry's prefix routing."""

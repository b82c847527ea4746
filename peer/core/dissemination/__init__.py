"""Dissemination: how a message spreads over the overlay."""

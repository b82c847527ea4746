"""Membership: which nodes one may connect to."""

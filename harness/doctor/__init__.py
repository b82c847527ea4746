"""Checks whether a run can be made on this machine. One module gathers facts; pure functions judge them."""

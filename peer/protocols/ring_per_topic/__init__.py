"""A ring for each topic."""

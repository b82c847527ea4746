"""The random overlay: links to nodes drawn uniformly."""

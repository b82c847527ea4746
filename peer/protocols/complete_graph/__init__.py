"""The complete overlay: a link between any two nodes."""

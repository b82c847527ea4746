"""The similarity overlay: links to the nodes with the most similar interests."""

"""The protocols, one package each."""

"""The colours of figures and pages."""

from typing import Final

PALETTE: Final = {
    "ink": ("#1d2429", "#e3e8ec"),
    "paper": ("#ffffff", "#1c2328"),
    "grid": ("#e4e7ea", "#333d45"),
    "edge": ("#9aa3ab", "#6d7982"),
    "shade": ("#f2f5f8", "#242d33"),
    "land": ("#e6ebe4", "#2b353a"),
    "coast": ("#c8d0c5", "#46535a"),
    "blue": ("#2266aa", "#6aaeee"),
    "orange": ("#dd7722", "#f29a4f"),
    "green": ("#2a8a57", "#53c48a"),
    "red": ("#c0392b", "#f07a6d"),
    "grey": ("#8a929a", "#9aa5ae"),
    "purple": ("#7a4fa3", "#b792dd"),
    "mustard": ("#b08d00", "#d9b93c"),
    "pale": ("#9fb7cf", "#7f9cb8"),
    "teal": ("#3aa6b9", "#5cc6d8"),
    "brown": ("#5d4037", "#b08f83"),
    "pink": ("#d46a92", "#ea8fb1"),
}
"""Every colour of a figure, on a light page and on a dark one. Figures are drawn in the light ones."""


def palette_css() -> str:
    """Return the colours of figures as CSS variables, for light and for dark pages."""
    light, dark = (" ".join(f"--{name}: {colours[place]};" for name, colours in PALETTE.items()) for place in range(2))
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"

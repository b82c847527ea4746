"""A folder of a stranger: an import of any file there leaves the file's name in the folder."""

from pathlib import Path

OF_PYTHON = ("argparse", "ctypes", "select", "pickle", "zipfile", "sitecustomize", "usercustomize")
OF_OTHERS = ("numpy", "pyarrow", "msgspec", "pyspark", "matplotlib", "paramiko", "mininet")
OF_TRELLIS = ("metrics", "harness", "peer", "topologies")


def plant_modules(folder: Path) -> Path:
    """Write files with the names of modules into a folder; return the file to which they write theirs if imported."""
    imported = folder / "imported"
    for name in (*OF_PYTHON, *OF_OTHERS, *OF_TRELLIS):
        (folder / f"{name}.py").write_text(f"print(__name__, file=open({str(imported)!r}, 'a'))\n")
    (folder / "matplotlibrc").write_text("text.usetex: True\n")  # LaTeX would be started for every label
    return imported

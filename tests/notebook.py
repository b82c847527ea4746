"""Runs the cells of a Jupyter notebook in order, without Jupyter.

The outputs that ``docs/questions.ipynb`` shows are stored by it; it needs an analysed run::

    RUN=runs/quickstart/... python -m tests.notebook docs/questions.ipynb
"""

import ast
import json
import os
import sys
from pathlib import Path
from typing import Any


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Execute a cell, and return the value of its last statement; None if that is no expression."""
    body = ast.parse(source).body
    shown = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return None if shown is None else eval(compile(ast.Expression(shown.value), "cell", "eval"), names)


def main(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    os.chdir(path.parent)
    for number, cell in enumerate(code_cells(notebook), 1):
        value = run_cell("".join(cell["source"]), names)
        cell |= {"execution_count": number, "outputs": []}
        if value is not None:
            data = {"text/html": value.to_html(index=False, border=0), "text/plain": value.to_string(index=False)}
            lines = {kind: text.splitlines(keepends=True) for kind, text in data.items()}
            cell["outputs"] = [
                {"data": lines, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
            ]
    (Path.cwd() / path.name).write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())

"""The example notebook, cell by cell in a kernel of Jupyter, on a local cloud."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import System
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/notebook"

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(cell: Any, kind: str) -> str:
    """What the cell shows in that kind of output, all of it together."""
    parts = [output["data"].get(kind, "") for output in cell["outputs"] if "data" in output]
    return "\n".join("".join(part) for part in parts)


def cell_with(notebook: Any, source: str) -> Any:
    (cell,) = (cell for cell in code_cells(notebook) if source in cell["source"])
    return cell


def test_it_is_kept_without_outputs() -> None:
    notebook = json.loads((FOLDER / "queue.ipynb").read_text())
    assert len(code_cells(notebook)) > 8
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code_cells(notebook))


def test_all_of_it_runs(system: System, tmp_path: Path) -> None:
    import nbclient
    import nbformat

    folder = tmp_path / "notebook"
    shutil.copytree(FOLDER, folder)
    notebook: Any = nbformat.read(folder / "queue.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SAGEMAKER_"))},
        **system.cloud.environment(),
        **dict.fromkeys(("HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"), str(tmp_path)),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",
    }
    client = nbclient.NotebookClient(
        notebook, timeout=int(PATIENCE), kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=environment)

    assert "Capacity" in shown(cell_with(notebook, "queue.queue()"), "text/html")
    assert "would start at once" in shown(cell_with(notebook, "queue.plan("), "text/html")
    assert "from-a-notebook" in shown(cell_with(notebook, "submit("), "text/html")
    waited = cell_with(notebook, "queue.wait(job)")
    assert '<progress value="1" max="1">' in shown(waited, "text/html")  # an output that has changed, and is one
    assert len(waited["outputs"]) == 2
    assert "✓ completed" in waited["outputs"][-1]["data"]["text/html"]
    (log,) = cell_with(notebook, "queue.logs(")["outputs"]
    assert log["text"].splitlines()[-1].startswith("step 40: loss ")
    assert "step" in shown(cell_with(notebook, "losses.tail"), "text/html")
    assert (folder / "results/from-a-notebook/model/loss.csv").is_file()
    assert '<progress value="3" max="3">' in shown(cell_with(notebook, "queue.wait(sweep)"), "text/html")
    assert "lr-from-a-notebook-lr-0-3" in shown(cell_with(notebook, "sort_values"), "text/html")
    assert shown(cell_with(notebook, 'jobs("all")'), "text/html").count("✓ completed") == 4
    assert "Instance-h" in shown(cell_with(notebook, "queue.usage("), "text/html")
    assert "completed" in shown(cell_with(notebook, "queue.history("), "text/html")

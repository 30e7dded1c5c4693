"""Settings that all tests share, their markers, and the order in which several workers begin them."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Importing the SageMaker SDK warns that there is a newer one, and boto3 looks for credentials on the network where it
# finds none.
os.environ["SAGEMAKER_SUPPRESS_V2_WARNING"] = "1"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

# The ordinary run is the same every time, so that it fails for a change and not by chance; new examples are looked for
# by the long one, for a night: pytest --hypothesis-profile=long
# Neither fails because the machine is slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ordinary", patient, derandomize=True)
settings.register_profile("long", patient, max_examples=5000)
settings.load_profile("ordinary")

HERE = Path(__file__).parent
ELSEWHERE = "repository"  # the marker of tests in no folder
# A module of these shares what takes seconds to start.
STAY_TOGETHER = {"system", ELSEWHERE}
FIRST_TO_LAST = ["system", "torture", ELSEWHERE, "sdk3", "local_cloud", "client", "contract", "unit"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each test has the marker of its folder; what takes long begins first, so that nobody waits for it at the end."""
    for item in items:
        folder, *below = item.path.relative_to(HERE).parts
        marker = folder if below else ELSEWHERE
        item.add_marker(marker)
        if marker in STAY_TOGETHER:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, int]:
    marker = next(marker.name for marker in item.iter_markers() if marker.name in FIRST_TO_LAST)
    return not item.get_closest_marker("slow"), FIRST_TO_LAST.index(marker)

"""The pages need what Python 3.9 cannot have, and other environments of the client need not have (`make matrix`)."""

from importlib.util import find_spec

if not all(map(find_spec, ("nicegui", "plotly"))):
    collect_ignore_glob = ["test_*.py"]

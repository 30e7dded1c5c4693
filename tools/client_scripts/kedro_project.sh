# A project of Kedro, as `kedro new` makes it, with a pipeline of one node; it runs as a job.
set -e
export KEDRO_DISABLE_TELEMETRY=1
kedro new --name=trainer --tools=none --example=n --telemetry=no
cd trainer
cat > src/trainer/pipeline_registry.py <<'PYTHON'
import os
from kedro.pipeline import Pipeline, node

def train() -> int:
    exec(os.environ["SCRIPT"], {})
    return 1

def register_pipelines() -> dict[str, Pipeline]:
    return {"__default__": Pipeline([node(train, inputs=None, outputs="model", name="train")])}
PYTHON
rm requirements.txt  # JupyterLab and more, which the node does not need
# PATH as in an image on SageMaker: a Python with Kedro.
smq submit --name "$2" --priority 1 --checkpoint --wait \
  --env SCRIPT="$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["Environment"]["SCRIPT"])' "$1")" \
  --env PATH="$PATH" --env KEDRO_DISABLE_TELEMETRY=1 -- kedro run

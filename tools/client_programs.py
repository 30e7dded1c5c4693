"""The programs that `make clients` runs: their packages, their commands, and the settings of their users."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Client:
    """A program, the packages of its environment, and its command.

    ``way`` describes how the program's jobs get into the queue. ``shown`` names the packages whose versions the table
    shows. ``command`` may contain ``{python}``, ``{programs}`` (the folder of the environment's programs),
    ``{scripts}`` (tools/client_scripts), ``{job}`` (a file with the job's request), ``{name}`` (the job's name) and
    ``{smq}`` (the smq of this checkout). ``installer`` installs the packages: "uv" (together with sagemaker-queue),
    "uv alone" (without sagemaker-queue), "npm", "maven", "go", "cargo", or "apt" (a Debian package that runs with the
    Python of an environment). The user of the program sets only environment variables (``settings``) or the content of
    ~/.aws/config (``aws_config``).
    """

    program: str
    way: str
    packages: tuple[str, ...]
    shown: tuple[str, ...]
    command: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    aws_config: str = ""
    installer: str = "uv"


_AIRFLOW = ("apache-airflow-providers-amazon[aiobotocore]",)
_AIRFLOW_SHOWN = ("apache-airflow-core", "apache-airflow-providers-amazon", "aiobotocore")
_FACTORY = {"AIRFLOW__AWS__SESSION_FACTORY": "sagemaker_queue.integrations.airflow.QueueSessionFactory"}
_FACTORY_WAY = "`AIRFLOW__AWS__SESSION_FACTORY=sagemaker_queue.integrations.airflow.QueueSessionFactory`"
_RUN = ("smq", "run", "--")
_ENVIRONMENT = "`smq run -- COMMAND`"
_BY_PROXY = ("{smq}", "proxy", "--")
_PROXY = "`smq proxy -- COMMAND`"
_SDK_V2 = ("sagemaker>=2.219,<3", "pip")  # @remote runs pip

CLIENTS: Mapping[str, Client] = {
    "boto3": Client(
        "boto3, a session of its own",
        _ENVIRONMENT,
        ("boto3",),
        ("boto3",),
        (*_RUN, "{python}", "{scripts}/boto3_job.py", "{job}"),
    ),
    "boto3-install": Client(
        "boto3, a client that was there before",
        "`sagemaker_queue.install(everywhere=True)`",
        ("boto3",),
        ("boto3",),
        ("{python}", "{scripts}/boto3_job.py", "{job}", "--install"),
    ),
    "aioboto3": Client(
        "aioboto3",
        _ENVIRONMENT,
        ("aioboto3",),
        ("aioboto3", "aiobotocore"),
        (*_RUN, "{python}", "{scripts}/aioboto3_job.py", "{job}"),
    ),
    "awscli": Client(
        "AWS CLI 1: create, wait, describe",
        "`[plugins] queue = sagemaker_queue.integrations.awscli` in `~/.aws/config`",
        ("awscli",),
        ("awscli",),
        ("sh", "{scripts}/aws_cli.sh", "{job}", "{name}"),
        aws_config="[plugins]\nqueue = sagemaker_queue.integrations.awscli\n",
    ),
    "awscli-run": Client(
        "AWS CLI 1: create, wait, describe",
        _ENVIRONMENT,
        ("awscli",),
        ("awscli",),
        (*_RUN, "sh", "{scripts}/aws_cli.sh", "{job}", "{name}"),
    ),
    "optuna": Client(
        "Optuna, four threads",
        _ENVIRONMENT,
        ("optuna",),
        ("optuna", "boto3"),
        (*_RUN, "{python}", "{scripts}/optuna_trials.py", "{job}"),
    ),
    "estimator": Client(
        "SageMaker SDK v2, `Estimator.fit()` without a session",
        _ENVIRONMENT,
        _SDK_V2,
        ("sagemaker",),
        (*_RUN, "{python}", "{scripts}/estimator.py", "{job}"),
    ),
    **{
        kind.lower(): Client(
            f"SageMaker SDK v2, `{kind}.fit()` without a session",
            _ENVIRONMENT,
            _SDK_V2,
            ("sagemaker",),
            (*_RUN, "{python}", "{scripts}/framework.py", "{job}", kind.lower()),
        )
        for kind in ("HuggingFace", "TensorFlow", "SKLearn", "XGBoost")
    },
    "remote-v2": Client(
        "SageMaker SDK v2, `@remote`",
        _ENVIRONMENT,
        _SDK_V2,
        ("sagemaker",),
        (*_RUN, "{python}", "{scripts}/remote_function.py", "{job}"),
    ),
    "model-trainer": Client(
        "SageMaker SDK v3, `ModelTrainer.train()` without a session",
        _ENVIRONMENT,
        ("sagemaker-train",),
        ("sagemaker-train", "sagemaker-core"),
        (*_RUN, "{python}", "{scripts}/model_trainer.py", "{job}"),
    ),
    "remote-v3": Client(
        "SageMaker SDK v3, `@remote`",
        _ENVIRONMENT,
        ("sagemaker-train", "pip"),
        ("sagemaker-train", "sagemaker-core"),
        (*_RUN, "{python}", "{scripts}/remote_function.py", "{job}"),
    ),
    "prefect": Client(
        "Prefect, `AwsCredentials.get_client()`",
        _ENVIRONMENT,
        ("prefect-aws",),
        ("prefect-aws", "prefect", "boto3"),
        (*_RUN, "{python}", "{scripts}/prefect_flow.py", "{job}"),
    ),
    "airflow": Client(
        "Airflow, SageMakerTrainingOperator",
        _FACTORY_WAY,
        _AIRFLOW,
        _AIRFLOW_SHOWN,
        ("{python}", "{scripts}/airflow_task.py", "{job}"),
        settings=_FACTORY,
    ),
    "airflow-deferrable": Client(
        "Airflow, SageMakerTrainingOperator, deferrable",
        _FACTORY_WAY,
        _AIRFLOW,
        _AIRFLOW_SHOWN,
        ("{python}", "{scripts}/airflow_task.py", "{job}", "--deferrable"),
        settings=_FACTORY,
    ),
    "airflow-run": Client(
        "Airflow, SageMakerTrainingOperator",
        _ENVIRONMENT,
        _AIRFLOW,
        _AIRFLOW_SHOWN,
        (*_RUN, "{python}", "{scripts}/airflow_task.py", "{job}"),
    ),
    "airflow-sensor": Client(
        "Airflow, SageMakerTrainingSensor",
        _FACTORY_WAY,
        _AIRFLOW,
        _AIRFLOW_SHOWN,
        ("{python}", "{scripts}/airflow_task.py", "{job}", "--sensor"),
        settings=_FACTORY,
    ),
    "airflow-retried": Client(
        "Airflow, SageMakerTrainingOperator, its worker killed and the task tried again",
        f"{_FACTORY_WAY}, `check_if_job_exists=False`",
        _AIRFLOW,
        _AIRFLOW_SHOWN,
        ("{python}", "{scripts}/airflow_retried.py", "{job}"),
        settings=_FACTORY,
    ),
    "dagster": Client(
        "Dagster, an asset by Dagster Pipes, with PipesCloudWatchMessageReader",
        _ENVIRONMENT,
        ("dagster", "dagster-aws"),
        ("dagster", "dagster-aws", "boto3"),
        (*_RUN, "{python}", "{scripts}/dagster_asset.py", "{job}"),
    ),
    "metaflow": Client(
        "Metaflow, a step with boto3",
        _ENVIRONMENT,
        ("metaflow",),
        ("metaflow", "boto3"),
        (*_RUN, "{python}", "{scripts}/metaflow_flow.py", "run", "--job", "{job}"),
        settings={"METAFLOW_USER": "somebody"},
    ),
    "kedro": Client(
        "Kedro, a project as `kedro new` makes it",
        "`smq submit -- kedro run`",
        ("kedro",),
        ("kedro",),
        ("sh", "{scripts}/kedro_project.sh", "{job}", "{name}"),
    ),
    "syne-tune": Client(
        "Syne Tune, two trials by SageMakerBackend",  # later versions have no SageMakerBackend
        _ENVIRONMENT,
        ("syne-tune[aws]==0.13.*", "sagemaker<3"),
        ("syne-tune", "sagemaker"),
        (*_RUN, "{python}", "{scripts}/syne_tune_trials.py", "{job}"),
    ),
    "flyte": Client(
        "Flyte, SageMakerTrainingJobTask and its connector",
        _ENVIRONMENT,
        ("flytekitplugins-awssagemaker",),
        ("flytekitplugins-awssagemaker", "flytekit", "aioboto3"),
        (*_RUN, "{python}", "{scripts}/flyte_task.py", "{job}"),
    ),
    "wandb": Client(
        "Weights & Biases, the launch agent's SageMaker runner",
        _ENVIRONMENT,
        ("wandb", "boto3", "jsonschema"),
        ("wandb", "boto3"),
        (*_RUN, "{python}", "{scripts}/wandb_launch.py", "{job}"),
    ),
    "zenml": Client(
        "ZenML, a step by its SageMaker step operator with a service connector",
        _ENVIRONMENT,
        ("zenml[server]", "sagemaker>=2.237.3,<3", "s3fs", "aws-profile-manager", "kubernetes", "pytz"),
        ("zenml", "sagemaker"),
        (*_RUN, "sh", "{scripts}/zenml_server.sh", "{job}"),
    ),
    "autogluon": Client(
        "AutoGluon-Cloud, `TabularCloudPredictor.fit()` with an entry point of one's own",
        _ENVIRONMENT,
        ("autogluon.cloud",),
        ("autogluon.cloud", "boto3"),
        (*_RUN, "{python}", "{scripts}/autogluon_fit.py", "{job}"),
    ),
    "boto3-proxy": Client(
        "boto3, without this package",
        _PROXY,
        ("boto3",),
        ("boto3",),
        (*_BY_PROXY, "{python}", "{scripts}/boto3_job.py", "{job}"),
        installer="uv alone",
    ),
    "awscli-proxy": Client(
        "AWS CLI 1, without this package: create, wait, describe, list, stop",
        _PROXY,
        ("awscli",),
        ("awscli",),
        (*_BY_PROXY, "sh", "-x", "{scripts}/aws_cli_by_proxy.sh", "{job}", "{name}"),
        installer="uv alone",
    ),
    "awscli2-proxy": Client(
        "AWS CLI 2 of Debian 12, with `--endpoint-url $AWS_ENDPOINT_URL_SAGEMAKER`: create, wait, describe, list, stop",
        _PROXY,
        ("awscli",),
        ("awscli",),
        (*_BY_PROXY, "sh", "-x", "{scripts}/aws_cli_2.sh", "{job}", "{name}"),
        installer="apt",
    ),
    "node": Client(
        "AWS SDK for JavaScript 3, in Node",
        _PROXY,
        ("@aws-sdk/client-sagemaker",),
        ("@aws-sdk/client-sagemaker",),
        (*_BY_PROXY, "env", "NODE_PATH={programs}/..", "node", "{scripts}/node_job.cjs", "{job}"),
        installer="npm",
    ),
    "java": Client(
        "AWS SDK for Java 2",
        _PROXY,
        ("software.amazon.awssdk:sagemaker",),
        ("sagemaker",),
        (*_BY_PROXY, "java", "-cp", "{programs}/*", "{scripts}/JavaJob.java", "{name}", "{job}"),
        installer="maven",
    ),
    "go": Client(
        "AWS SDK for Go 2",
        _PROXY,
        ("github.com/aws/aws-sdk-go-v2/service/sagemaker@v1.286.1", "github.com/aws/aws-sdk-go-v2/config@v1.32.0"),
        ("github.com/aws/aws-sdk-go-v2/service/sagemaker",),
        (*_BY_PROXY, "{programs}/job", "{job}"),
        installer="go",
    ),
    "rust": Client(
        "AWS SDK for Rust",
        _PROXY,
        (
            'aws-config = "1"',
            'aws-sdk-sagemaker = "1"',
            'serde_json = "1"',
            'tokio = { version = "1", features = ["macros", "rt", "time"] }',
        ),
        ("aws-sdk-sagemaker",),
        (*_BY_PROXY, "{programs}/job", "{job}"),
        installer="cargo",
    ),
}

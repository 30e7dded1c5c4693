"""The download of a job's inputs from S3 before its script starts, and the upload of its outputs afterwards."""

import tarfile
import threading
from collections.abc import Sequence

from local_cloud.sagemaker.job_processes.cluster import Cluster
from local_cloud.sagemaker.job_processes.container.requirements import install
from local_cloud.sagemaker.job_processes.instance import OPT_ML, Instance
from local_cloud.sagemaker.job_processes.storage import Storage, TransferError


def download_inputs(
    cluster: Cluster, instances: Sequence[Instance], storage: Storage, cancelled: threading.Event
) -> None:
    """Download the input channels. For a script, also download its code and install its requirements.

    Raise TransferError or InstallError. The event `cancelled` ends the installation early.
    """
    for channel in cluster.channels:
        source = channel["DataSource"]["S3DataSource"]
        groups = source.get("InstanceGroupNames")
        receivers = [it for it in instances if not groups or cluster.group_of(it.host).name in groups]
        for shard, instance in enumerate(receivers):
            target = instance.root / "input" / "data" / channel["ChannelName"]
            storage.download_channel(source, target, shard, len(receivers))
    if cluster.script and (not cluster.entrypoint or "sagemaker_submit_directory" in cluster.hyperparameters):
        _download_code(cluster, instances, storage)
        requirements = instances[0].source / "requirements.txt"
        packages = cluster.folder / "packages"
        if requirements.is_file() and install(requirements, packages, cluster.base_environment, cancelled):
            cluster.python_path.append(str(packages))


def upload_outputs(
    cluster: Cluster, instances: Sequence[Instance], storage: Storage, *, with_model: bool
) -> str | None:
    """Upload output/data of all instances and, if `with_model`, the model. Return the model's S3 address or None."""
    config = cluster.request["OutputDataConfig"]
    base = f"{config['S3OutputPath'].rstrip('/')}/{cluster.name}/output"
    packed = config.get("CompressionType", "GZIP") == "GZIP"
    upload = storage.upload_packed if packed else storage.upload_folders
    outputs = [instance.root / "output" / "data" for instance in instances]
    if any(any(folder.iterdir()) for folder in outputs):
        upload(outputs, f"{base}/output.tar.gz" if packed else f"{base}/data/")
    if not with_model:
        return None
    model = f"{base}/model.tar.gz" if packed else f"{base}/model/"
    upload([instance.root / "model" for instance in instances], model)
    return model


def _download_code(cluster: Cluster, instances: Sequence[Instance], storage: Storage) -> None:
    where = str(cluster.hyperparameters.get("sagemaker_submit_directory", ""))
    archive = cluster.folder / "sourcedir.tar.gz"
    if where.startswith(f"{OPT_ML}/"):  # with network isolation, the SDK sends the code through a channel
        archive = instances[0].root / where.removeprefix(f"{OPT_ML}/")
    else:
        storage.download(where, archive)
    try:
        for instance in instances:
            instance.unpack_code(archive)
    except (tarfile.TarError, OSError) as error:
        raise TransferError(f"{where} could not be unpacked: {error}") from error

"""What comes from S3 before a script starts, and what goes back to S3 after it."""

import tarfile
import threading
from collections.abc import Sequence

from local_cloud.sagemaker.job_processes.cluster import Cluster
from local_cloud.sagemaker.job_processes.container.requirements import install
from local_cloud.sagemaker.job_processes.instance import OPT_ML, Instance
from local_cloud.sagemaker.job_processes.storage import Storage, TransferError


def bring_in(cluster: Cluster, instances: Sequence[Instance], storage: Storage, cancelled: threading.Event) -> None:
    """Input channels and, for a script, its code and requirements; raises TransferError or InstallError."""
    for instance in instances:
        for channel in cluster.channels:
            source = channel["DataSource"]["S3DataSource"]
            groups = source.get("InstanceGroupNames")
            if not groups or cluster.group_of(instance.host).name in groups:
                target = instance.root / "input" / "data" / channel["ChannelName"]
                storage.download_channel(source, target, instance.shard, len(instances))
    if cluster.script and (not cluster.entrypoint or "sagemaker_submit_directory" in cluster.hyperparameters):
        _bring_code(cluster, instances, storage)
        requirements = instances[0].source / "requirements.txt"
        packages = cluster.folder / "packages"
        if requirements.is_file() and install(requirements, packages, cluster.base_environment, cancelled):
            cluster.python_path.append(str(packages))


def take_out(cluster: Cluster, instances: Sequence[Instance], storage: Storage, *, with_model: bool) -> str | None:
    """The artifacts of all instances; gives the address of the model. What is in output/data is kept in any case."""
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


def _bring_code(cluster: Cluster, instances: Sequence[Instance], storage: Storage) -> None:
    where = str(cluster.hyperparameters.get("sagemaker_submit_directory", ""))
    archive = cluster.folder / "sourcedir.tar.gz"
    if where.startswith(f"{OPT_ML}/"):  # the SDK sends it through a channel where the network is isolated
        archive = instances[0].root / where.removeprefix(f"{OPT_ML}/")
    else:
        storage.download(where, archive)
    try:
        for instance in instances:
            instance.unpack_code(archive)
    except (tarfile.TarError, OSError) as error:
        raise TransferError(f"{where} could not be unpacked: {error}") from error

"""Requests for commands, data links, sweeps: what is asked for, and what is refused."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.jobs.packaging.command import (
    PLACEHOLDER,
    CommandJob,
    DataLink,
    default_name,
    next_name,
    resubmission,
    stem,
)
from sagemaker_queue.jobs.packaging.container import run
from sagemaker_queue.jobs.packaging.sweep import expand, parse_grid
from sagemaker_queue.queue.config.job_defaults import seconds
from sagemaker_queue.queue.data_links import S3Address, address_of, link_path, parse_link

HOME = S3Address("bucket", "sagemaker-queue")


def a_job(**changes: Any) -> CommandJob:
    settings: dict[str, Any] = {
        "name": "job1",
        "command": ("python", "train.py"),
        "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
        "role": "arn:aws:iam::123456789012:role/training",
        "instance_type": "ml.p5.48xlarge",
        "code": HOME / "code/0123456789abcdef",
        "program": "0" * 64,
        "source": f"{'0' * 64} 10240",
        "output": HOME / "output",
    }
    return CommandJob(**settings | changes)


def channels(request: dict[str, Any]) -> dict[str, str]:
    return {one["ChannelName"]: one["DataSource"]["S3DataSource"]["S3Uri"] for one in request["InputDataConfig"]}


class TestRequest:
    @pytest.mark.skipif(find_spec("aws_lambda_powertools") is None, reason="the queue, which judges it, is not here")
    def test_it_is_one_that_sagemaker_takes(self) -> None:
        from job_queue.validation import against_model, against_sagemaker  # noqa: PLC0415
        from local_cloud.sagemaker.validation import service_model  # noqa: PLC0415

        links = tuple(DataLink(f"data/{number}", S3Address("sets", f"x/{number}")) for number in range(19))
        job = a_job(
            command=("sh", "-c", "line\nbreak " * 1000),
            data=links,
            env={"A": "b"},
            tags={"priority": "1"},
            checkpoint_home=HOME / "checkpoints",
            launcher="torchrun",
            processes=8,
            instances=(2,),
        )
        request = json.loads(json.dumps(job.request()))
        shape: Any = service_model().operation_model("CreateTrainingJob").input_shape
        assert against_model(request, shape) == [] and against_sagemaker(request) == []
        assert max(len(word) for word in request["AlgorithmSpecification"]["ContainerEntrypoint"]) <= 256

    def test_the_container_reads_what_was_asked_for(self, tmp_path: Path) -> None:
        command = ("python", "-c", "print('ünï\n')" * 500, "")
        links = (
            DataLink("data/images", S3Address("sets", "images")),
            DataLink("a.txt", S3Address("sets", "deep/b.txt"), is_file=True),
        )
        request = a_job(command=command, data=links, launcher="mpirun", processes=3).request()
        (tmp_path / "hyperparameters.json").write_text(json.dumps(request["HyperParameters"]))
        (tmp_path / "resourceconfig.json").write_text('{"hosts": ["algo-1", "algo-2"], "current_host": "algo-2"}')
        job = run.JobConfiguration(tmp_path)
        assert (tuple(job.command), job.launcher, job.processes, job.rank) == (command, "mpirun", 3, 1)
        assert job.data == {"data/images": "data-images", "a.txt": "a-txt/b.txt"}

    def resolved(self, folder: Path, *command: str, **changes: Any) -> list[str]:
        """The command as the container starts it, with /opt/ml in place of the folder that plays it."""
        request = a_job(command=command, **changes).request()
        (folder / "hyperparameters.json").write_text(json.dumps(request["HyperParameters"]))
        (folder / "resourceconfig.json").write_text('{"hosts": ["algo-1"], "current_host": "algo-1"}')
        return [word.replace(str(run.ML), "/opt/ml") for word in run.JobConfiguration(folder).command]

    LINKS = (
        DataLink("data/images", S3Address("sets", "images")),
        DataLink("data-images", S3Address("sets", "others")),
        DataLink("a.txt", S3Address("sets", "deep/b.txt"), is_file=True),
    )

    @pytest.mark.parametrize(
        ("word", "expected"),
        [
            ("{data:data/images}", "/opt/ml/input/data/data-images"),
            ("{data:./data//images/}", "/opt/ml/input/data/data-images"),
            ("{data:data-images}", "/opt/ml/input/data/data-images-2"),  # a path goes before a channel's name
            ("{data:data-images-2}", "/opt/ml/input/data/data-images-2"),
            ("{data:a.txt}", "/opt/ml/input/data/a-txt/b.txt"),
            ("{data:more}", "/opt/ml/input/data/more"),
            ("-d={data:a.txt},{data:more}/x", "-d=/opt/ml/input/data/a-txt/b.txt,/opt/ml/input/data/more/x"),
            ("{{data:a.txt}} {data:more}", "{data:a.txt} /opt/ml/input/data/more"),
            ("{{data:anything}}", "{data:anything}"),
            ("${data:0:3} {data} {datum:x} {data:} {lr}", "${data:0:3} {data} {datum:x} {data:} {lr}"),
        ],
    )
    def test_document_004_a_placeholder_is_replaced_by_the_path_of_data(
        self, tmp_path: Path, word: str, expected: str
    ) -> None:
        more = {"InputDataConfig": [{"ChannelName": "more"}]}
        assert self.resolved(tmp_path, "train", word, data=self.LINKS, more=more) == ["train", expected]

    @pytest.mark.parametrize("more", [{"InputDataConfig": "x"}, {"InputDataConfig": ["x", {"ChannelName": 1}, {}]}])
    def test_channels_that_are_none_have_no_names(self, more: dict[str, Any]) -> None:
        with pytest.raises(InvalidOption, match=r"no data of that name\. It has: a\.txt\."):
            a_job(command=("{data:x}",), data=self.LINKS[2:], more=more).request()

    def test_a_command_without_placeholders_is_sent_as_before(self, tmp_path: Path) -> None:
        plain = a_job(command=("train", "${data:x}"), data=self.LINKS).request()
        assert "places" not in plain["HyperParameters"]
        kept = a_job(command=("train", "{data:a.txt}"), data=self.LINKS).request()["HyperParameters"]
        assert json.loads(kept["command"]) == ["train", "{data:a.txt}"]  # as smq show tells it
        assert json.loads(kept["places"]) == {"a.txt": "a-txt/b.txt"}

    def test_many_long_names_come_in_pieces(self, tmp_path: Path) -> None:
        links = tuple(DataLink("ü" * 200 + str(number), S3Address("sets", "x")) for number in range(15))
        words = [f"{{data:{link.path}}}" for link in links]
        found = self.resolved(tmp_path, *words, data=links)
        assert len(set(found)) == 15 and all(word.startswith("/opt/ml/input/data/") for word in found)

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (LINKS, r"no data of that name\. Did you mean 'data/images'\? It has: data/images, data-images, a\.txt\."),
            ((), r"no data of that name\. It has: none\. --data PATH=s3://"),
        ],
    )
    def test_a_placeholder_of_no_data_is_refused_with_the_names_that_there_are(
        self, data: tuple[DataLink, ...], message: str
    ) -> None:
        with pytest.raises(InvalidOption, match=message) as caught:
            a_job(command=("train", "{data:data/imagse}"), data=data).request()
        assert "write {{data:data/imagse}} if braces are meant" in str(caught.value)

    def test_client_and_container_read_the_same_placeholders(self) -> None:
        assert run.PLACEHOLDER.pattern == PLACEHOLDER.pattern

    def test_the_launcher_counts_the_hosts_that_the_attempt_has(self, tmp_path: Path) -> None:
        """A job that accepts 8, 4 or 2 instances may have any of these; nothing in the request says so."""
        request = a_job(command=("true",), launcher="torchrun", processes=3, instances=(8, 4, 2)).request()
        (tmp_path / "hyperparameters.json").write_text(json.dumps(request["HyperParameters"]))
        (tmp_path / "resourceconfig.json").write_text('{"hosts": ["algo-1", "algo-2"], "current_host": "algo-2"}')
        job = run.JobConfiguration(tmp_path)
        assert "--nnodes=2" in run.launch_command(job)
        assert json.loads(job.environment()["SM_HOSTS"]) == ["algo-1", "algo-2"]

    def test_channels_have_names_of_their_own_and_folders_end_in_a_slash(self) -> None:
        links = (
            DataLink("data/x", S3Address("sets", "x")),
            DataLink("data-x", S3Address("sets", "y/"), mode="FastFile"),
            DataLink("code", S3Address("sets")),
            DataLink("a.txt", S3Address("sets", "a.txt"), is_file=True),
        )
        assert channels(a_job(data=links).request()) == {
            "code": "s3://bucket/sagemaker-queue/code/0123456789abcdef/",
            "data-x": "s3://sets/x/",
            "data-x-2": "s3://sets/y/",
            "code-2": "s3://sets/",
            "a-txt": "s3://sets/a.txt",
        }

    def test_twenty_data_links_are_too_many(self) -> None:
        links = tuple(DataLink(str(number), S3Address("sets")) for number in range(20))
        with pytest.raises(InvalidOption, match="a job can have 19"):
            a_job(data=links).request()

    def test_checkpoints_are_a_jobs_own_unless_an_address_is_given(self) -> None:
        home = HOME / "checkpoints"

        def kept(**changes: Any) -> Any:
            return a_job(**changes).request().get("CheckpointConfig", {}).get("S3Uri")

        assert kept() is None
        assert kept(checkpoint_home=home) == kept(checkpoint_home=home)
        assert kept(checkpoint_home=home) != kept(checkpoint_home=home, name="job2")
        assert kept(checkpoint_home=home) != kept(checkpoint_home=home, code=HOME / "code/other")
        assert kept(checkpoints=S3Address("kept", "mine"), checkpoint_home=home) == "s3://kept/mine"

    def test_more_of_the_request_is_laid_below_the_options(self) -> None:
        more = {
            "VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]},
            "ResourceConfig": {"InstanceCount": 9, "KeepAlivePeriodInSeconds": 60},
            "Tags": [{"Key": "team", "Value": "vision"}],
        }
        request = a_job(more=more, tags={"priority": "1"}).request()
        assert request["VpcConfig"] == more["VpcConfig"]
        assert request["ResourceConfig"]["InstanceCount"] == 1
        assert request["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 60
        assert [tag["Key"] for tag in request["Tags"]] == ["priority", "team"]


class TestAgain:
    def test_another_name_and_checkpoints_beside(self) -> None:
        request = a_job(checkpoint_home=HOME / "checkpoints", tags={"priority": "1", "team": "x"}).request()
        later = resubmission(
            {**request, "Tags": [*request["Tags"], {"Key": "after", "Value": "a"}]}, "j", tags={"after": "b c:any"}
        )
        assert {tag["Key"]: tag["Value"] for tag in later["Tags"]}["after"] == "b c:any"
        assert len(later["Tags"]) == len(request["Tags"]) + 1
        again = resubmission(request, "job1-r2", tags={"priority": "5"})
        assert again["TrainingJobName"] == "job1-r2"
        assert again["CheckpointConfig"] != request["CheckpointConfig"]
        assert {tag["Key"]: tag["Value"] for tag in again["Tags"]} == {"priority": "5", "team": "x"}
        changed = {"TrainingJobName", "CheckpointConfig", "Tags"}
        assert {key for key in request if request[key] != again[key]} == changed

    @pytest.mark.parametrize(
        ("kept", "beside"),
        [
            ("s3://b/checkpoints/job1", "s3://b/checkpoints/job2"),
            ("s3://b/job1/checkpoints/", "s3://b/job2/checkpoints"),
            ("s3://b/all", "s3://b/all-job2"),
            ("s3://b/xjob1", "s3://b/xjob1-job2"),
        ],
    )
    def test_it_never_writes_into_the_checkpoints_of_the_first(self, kept: str, beside: str) -> None:
        request = {"TrainingJobName": "job1", "CheckpointConfig": {"S3Uri": kept, "LocalPath": "/c"}}
        assert resubmission(request, "job2")["CheckpointConfig"] == {"S3Uri": beside, "LocalPath": "/c"}
        assert resubmission(request, "job2", resume=True)["CheckpointConfig"]["S3Uri"] == kept

    def test_names_count_on(self) -> None:
        assert [next_name(name) for name in ("job", "job-r2", "job-r9", "lr-0-1")] == [
            "job-r2",
            "job-r3",
            "job-r10",
            "lr-0-1-r2",
        ]
        assert len(next_name("x" * 63)) == 63


class TestLinks:
    def test_paths_and_addresses(self) -> None:
        assert parse_link("data/images=s3://bucket/a=b") == ("data/images", S3Address("bucket", "a=b"))
        assert link_path("./data//images/") == "data/images"

    @pytest.mark.parametrize(
        "text", ["data", "data=", "data=/tmp", "data=s3://", "=s3://b/x", "/data=s3://b", "../x=s3://b", ".=s3://b"]
    )
    def test_what_is_no_link(self, text: str) -> None:
        with pytest.raises(InvalidOption):
            parse_link(text)

    def test_the_longest_link_says_where_a_path_is(self) -> None:
        links = {"data": S3Address("one", "all"), "data/images": S3Address("two", "images/")}
        assert str(address_of("data/x.txt", links)) == "s3://one/all/x.txt"
        assert str(address_of("./data/images/a/", links)) == "s3://two/images/a/"
        assert str(address_of("data/images2", links)) == "s3://one/all/images2"
        with pytest.raises(InvalidOption, match=r"no data link .*it has: data, data/images"):
            address_of("other", links)


class TestSweep:
    def test_all_combinations_each_with_its_name(self) -> None:
        grids = [parse_grid("lr=0.1,0.01"), parse_grid("n=2,4")]
        runs = expand("s", grids, ["train", "--lr={lr}", "-n", "{n}", "${HOME}", "{{lr}}", '{"a": 1}'], {"N": "x{n}"})
        assert [run.name for run in runs] == ["s-lr-0-1-n-2", "s-lr-0-1-n-4", "s-lr-0-01-n-2", "s-lr-0-01-n-4"]
        assert runs[1].command == ("train", "--lr=0.1", "-n", "4", "${HOME}", "{lr}", '{"a": 1}')
        assert runs[1].env == {"N": "x4"}

    def test_names_that_would_be_alike_or_too_long_are_told_by_a_hash(self) -> None:
        runs = expand("s", [parse_grid("a=x.y,x/y," + "z" * 60)], ["{a}"], {})
        names = [run.name for run in runs]
        assert len(set(names)) == 3 and all(len(name) <= 50 for name in names)
        again = expand("s", [parse_grid("a=x/y,x.y")], ["{a}"], {})
        assert {run.name for run in again} == set(names[:2])

    @pytest.mark.parametrize(
        ("grids", "command", "message"),
        [
            (["lr=1"], ["{rl}", "{lr}"], r"placeholder \{rl\}, but there is no --grid rl"),
            (["lr=1", "n=2"], ["{lr}"], "grid n changes nothing"),
            (["lr=1", "lr=2"], ["{lr}"], "given twice"),
        ],
    )
    def test_a_grid_and_its_placeholders_belong_together(
        self, grids: list[str], command: list[str], message: str
    ) -> None:
        with pytest.raises(InvalidOption, match=message):
            expand("s", [parse_grid(grid) for grid in grids], command, {})

    @pytest.mark.parametrize("text", ["lr", "lr=", "lr=1,,2", "l-r=1", "=1", "lr=1,1"])
    def test_what_is_no_grid(self, text: str) -> None:
        with pytest.raises(InvalidOption):
            parse_grid(text)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "src/train.py", "--x"], "train"),
        (["python", "-m", "pkg.fit"], "fit"),
        (["/usr/bin/nvidia-smi"], "nvidia-smi"),
        (["sh", "-c", "x"], "sh"),
        (["./--.sh"], "job"),
        (["x" * 99], "x" * 30),
    ],
)
def test_jobs_are_named_after_their_command(command: list[str], name: str) -> None:
    assert stem(command) == name
    assert default_name(command).startswith(f"{name}-2") and len(default_name(command)) <= 63
    assert default_name(command) != default_name(command)


def test_times() -> None:
    assert [seconds(text) for text in ("90", "90s", "90m", "12h", "3d")] == [90, 90, 5400, 43_200, 259_200]
    for text in ("", "0", "h", "1w", "-1", "1.5h"):
        with pytest.raises(InvalidOption):
            seconds(text)

"""The example of steps: state machines of Step Functions and callback steps of Pipelines run jobs of the queue.

Real here: the function in its own process with its role, the table, the SQS queue, the rules, and the queue itself.
Emulated: Step Functions, by ministack and local_cloud/services/task_tokens.py. Not run: SageMaker Pipelines. The
SageMaker SDK makes the definition of the pipeline, and this module sends the messages and receives the answers that
AWS's documentation describes. botocore's model of the service checks the answers.
"""

import io
import json
import re
import sys
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from samtranslator.yaml_helper import yaml_parse

from local_cloud.aws.deployment import BUCKET, expanded
from local_cloud.aws.stack import PROJECT
from local_cloud.ports import free_ports
from tests.system.conftest import FOREVER, WAIT, System
from tests.waiting import until

PERIOD = 60.0  # seconds between two looks of the function's schedule
EXAMPLE = PROJECT / "examples" / "step_functions"
STACK = "steps"
TRUST = {
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"}]
}

Json = dict[str, Any]


class Steps:
    """The deployed example. Its schedule is off: `look` invokes the function as the schedule does."""

    def __init__(self, system: System) -> None:
        self.system = system
        cloud = system.cloud
        self.states = cloud.client("stepfunctions")
        self.sqs = cloud.client("sqs")
        self.functions = cloud.client("lambda")
        self.events = cloud.client("events")
        self.outputs = self._deploy()
        self.url = self.outputs["StepsQueueUrl"]
        self.table = cloud.boto_session().resource("dynamodb", region_name="us-east-1").Table(self.outputs["TableName"])
        self._rules = self._own_rules()
        self.events.disable_rule(Name=self._rules["schedule"])
        role = cloud.client("iam").create_role(RoleName="machines", AssumeRolePolicyDocument=json.dumps(TRUST))
        self._role = role["Role"]["Arn"]

    def _deploy(self) -> Json:
        cloud = self.system.cloud
        template = yaml_parse((EXAMPLE / "template.yaml").read_text())
        function = template["Resources"]["StepsFunction"]["Properties"]
        function["CodeUri"] = f"s3://{BUCKET}/steps.zip"
        function["Runtime"] = f"python3.{sys.version_info.minor}"  # workers run under this interpreter
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.write(EXAMPLE / "queue_steps.py", "queue_steps.py")
        cloud.client("s3").put_object(Bucket=BUCKET, Key="steps.zip", Body=code.getvalue())
        # The local cloud has no networks, so no subnet is looked up.
        parameters = {"QueueUrl": cloud.queue_url, "ApiId": cloud.queue_url.split("/")[4]}
        parameters |= {"SubnetIds": "subnet-00000000", "SecurityGroupIds": "sg-00000000"}
        cloudformation = cloud.client("cloudformation")
        cloudformation.create_stack(
            StackName=STACK,
            TemplateBody=expanded(json.dumps(template), "us-east-1"),
            Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()],
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        )

        def stack() -> Json:
            found: Json = cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]
            return {} if found["StackStatus"].endswith("_IN_PROGRESS") else found

        made = until(stack)
        assert made["StackStatus"] == "CREATE_COMPLETE", made
        return {output["OutputKey"]: output["OutputValue"] for output in made["Outputs"]}

    def _own_rules(self) -> Json:
        function = self.functions.get_function_configuration(FunctionName=self.outputs["FunctionName"])["FunctionArn"]
        names = self.events.list_rule_names_by_target(TargetArn=function)["RuleNames"]
        rules = [self.events.describe_rule(Name=name) for name in names]
        assert len(rules) == 2
        return {"schedule" if "ScheduleExpression" in rule else "finished": rule["Name"] for rule in rules}

    @contextmanager
    def without_events(self) -> Iterator[None]:
        """Let the events of finished jobs get lost."""
        self.events.disable_rule(Name=self._rules["finished"])
        try:
            yield
        finally:
            self.events.enable_rule(Name=self._rules["finished"])

    def look(self) -> None:
        """Invoke the function as its schedule does."""
        self.invoke({})

    def invoke(self, event: Json) -> None:
        """Invoke the function with an event."""
        answer = self.functions.invoke(FunctionName=self.outputs["FunctionName"], Payload=json.dumps(event))
        content = answer["Payload"].read()
        assert "FunctionError" not in answer, content

    def machine(self, change: Callable[[Json], object] = lambda train: None) -> str:
        """Create the example's state machine, with a change of its task."""
        text = (EXAMPLE / "state_machine.json").read_text()
        assert text.count("STEPS_QUEUE_URL") == 1
        definition = json.loads(text.replace("STEPS_QUEUE_URL", self.url))
        change(definition["States"]["Train"])
        name = f"machine-{uuid.uuid4().hex[:8]}"
        made = self.states.create_state_machine(name=name, definition=json.dumps(definition), roleArn=self._role)
        return str(made["stateMachineArn"])

    def start(self, name: str, script: str, machine: str | None = None, **changes: Any) -> str:
        """Start an execution whose job is `train-NAME`; return its ARN."""
        request = self.system.request("replaced", script, **changes)
        given = json.dumps({"request": request, "kept": 1})
        machine = machine or self.machine()
        return str(self.states.start_execution(stateMachineArn=machine, name=name, input=given)["executionArn"])

    def end(self, execution: str) -> Json:
        """Wait until an execution has ended, and return its description."""

        began = time.monotonic()

        def ended() -> Json:
            nonlocal began
            if time.monotonic() - began > PERIOD:  # the schedule finds an end whose event a busy machine has lost
                self.look()
                began = time.monotonic()
            found: Json = self.states.describe_execution(executionArn=execution)
            return {} if found["status"] == "RUNNING" else found

        return until(ended)

    def waiting(self, job: str) -> list[Json]:
        """Return the items of the steps that wait for a job."""
        return [item for item in self.table.scan(ConsistentRead=True)["Items"] if item["job"] == job]

    def pass_time(self, job: str, seconds: int) -> None:
        """Move the time at which the only step of a job was closed into the past."""
        (item,) = self.waiting(job)
        self.table.update_item(
            Key={"job": item["job"], "step": item["step"]},
            UpdateExpression="SET closed = closed - :time",
            ExpressionAttributeValues={":time": seconds},
        )


@pytest.fixture(scope="module")
def shared_steps(shared_system: System) -> Steps:
    return Steps(shared_system)


@pytest.fixture
def steps(system: System, shared_steps: Steps) -> Steps:
    return shared_steps


def test_the_role_has_the_rights_that_the_function_uses() -> None:
    source = (EXAMPLE / "queue_steps.py").read_text()
    services = {"table": "dynamodb", "step_functions": "states", "sagemaker": "sagemaker"}
    calls = re.findall(rf"\b({'|'.join(services)})\.([a-z]+_[a-z_]+|query|scan)\b", source)
    used = {f"{services[client]}:{''.join(part.title() for part in call.split('_'))}" for client, call in calls}
    role = yaml_parse((EXAMPLE / "template.yaml").read_text())["Resources"]["StepsRole"]["Properties"]
    statements = role["Policies"][0]["PolicyDocument"]["Statement"]
    given = {action for statement in statements for action in flat(statement["Action"])}
    trigger = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}  # Lambda calls them
    assert given == used | trigger | {"execute-api:Invoke"}


def flat(actions: str | list[str]) -> list[str]:
    """Return the actions of a statement as a list."""
    return [actions] if isinstance(actions, str) else actions


@pytest.mark.thorough
def test_a_step_gets_the_result_of_a_completed_job(steps: Steps) -> None:
    execution = steps.start("good", "pass")
    ended = steps.end(execution)
    assert ended["status"] == "SUCCEEDED", ended
    result = {"Job": "train-good", "State": "completed", "TrainingJobName": "train-good-qstamp-1"}
    assert json.loads(ended["output"])["training"] == result
    assert json.loads(ended["output"])["kept"] == 1
    until(lambda: not steps.waiting("train-good"))
    owner = steps.system.job("train-good").owner
    assert owner and owner.startswith(
        steps.outputs["RoleArn"].replace(":iam:", ":sts:").replace(":role/", ":assumed-role/")
    )


@pytest.mark.thorough
def test_the_token_is_not_part_of_the_job(steps: Steps) -> None:
    steps.start("secret", FOREVER)
    steps.system.wait_state("train-secret", "running")
    (item,) = steps.waiting("train-secret")
    assert item["token"] not in item["step"]
    rows = steps.system.cloud.client("dynamodb").scan(TableName="sagemaker-queue", ConsistentRead=True)["Items"]
    described = [json.dumps(rows), json.dumps(steps.system.attempts(), default=str)]
    assert all("train-secret" in text and item["token"] not in text for text in described)
    logs = steps.system.cloud.client("logs").filter_log_events(logGroupName=f"/aws/lambda/{STACK}")["events"]
    assert item["token"] not in json.dumps(logs)


def test_a_step_fails_with_the_reason_of_a_failed_job(steps: Steps) -> None:
    ended = steps.end(steps.start("bad", "raise SystemExit('no such dataset')"))
    assert (ended["status"], ended["error"]) == ("FAILED", "Queue.JobFailed")
    assert ended["cause"].startswith("train-bad: ")


def test_a_step_fails_if_its_job_is_cancelled(steps: Steps) -> None:
    execution = steps.start("cancelled", FOREVER)
    steps.system.wait_state("train-cancelled", "running")
    steps.system.queue.cancel("train-cancelled")
    ended = steps.end(execution)
    assert (ended["status"], ended["error"]) == ("FAILED", "Queue.JobStopped")
    until(lambda: not steps.waiting("train-cancelled"))


def test_a_step_fails_if_the_queue_refuses_its_request(steps: Steps) -> None:
    ended = steps.end(steps.start("refused", "pass", RoleArn="arn:aws:iam::000000000000:role/other"))
    assert (ended["status"], ended["error"]) == ("FAILED", "Queue.Forbidden")
    assert "role/other" in ended["cause"]
    assert steps.system.state("train-refused") is None
    until(lambda: not steps.waiting("train-refused"))


@pytest.mark.thorough
def test_a_message_that_is_delivered_twice_submits_one_job(steps: Steps, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = WAIT.format(file=str(gate))
    execution = steps.start("twice", script)
    steps.system.wait_state("train-twice", "running")
    (item,) = steps.waiting("train-twice")
    arguments = {"TrainingJobName": "train-twice", "request": steps.system.request("replaced", script)}
    message = json.dumps({"token": item["token"], "arguments": arguments})
    steps.table.delete_item(Key={"job": item["job"], "step": item["step"]})
    steps.sqs.send_message(QueueUrl=steps.url, MessageBody=message)
    until(lambda: steps.waiting("train-twice"))  # it has been received
    gate.touch()
    assert steps.end(execution)["status"] == "SUCCEEDED"
    assert len(steps.system.job("train-twice").attempts) == 1
    steps.sqs.send_message(QueueUrl=steps.url, MessageBody=message)  # and once more, after the answer
    until(lambda: read(steps) == 0 and not steps.waiting("train-twice"))
    assert len(steps.system.job("train-twice").attempts) == 1


def read(steps: Steps) -> int:
    """Return the number of messages that are not received, or not deleted yet."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    attributes = steps.sqs.get_queue_attributes(QueueUrl=steps.url, AttributeNames=names)["Attributes"]
    return sum(int(attributes[name]) for name in names)


@pytest.mark.thorough
def test_a_retried_step_waits_for_the_same_job(steps: Steps, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def hasty(train: Json) -> None:
        train["HeartbeatSeconds"] = 5
        # On a busy machine, the answer may take longer than a heartbeat, and the step is tried again and again.
        train["Retry"][0] |= {"IntervalSeconds": 1, "BackoffRate": 1.0, "MaxAttempts": 100}

    execution = steps.start("retried", WAIT.format(file=str(gate)), steps.machine(hasty))
    until(lambda: len(steps.waiting("train-retried")) >= 2)  # no heartbeat has come, and the step was tried again
    gate.touch()
    assert steps.end(execution)["status"] == "SUCCEEDED"
    assert len(steps.system.job("train-retried").attempts) == 1


@pytest.mark.thorough
def test_a_live_job_with_a_waiting_step_is_not_cancelled_for_a_closed_step(steps: Steps) -> None:
    steps.start("kept", FOREVER)
    steps.system.wait_state("train-kept", "running")
    (item,) = steps.waiting("train-kept")
    steps.table.put_item(
        Item={**item, "step": sha256(b"unknown").hexdigest(), "token": "unknown", "closed": 1}
    )  # closed since 1970
    steps.look()
    assert not steps.system.job("train-kept").cancel_requested
    assert steps.waiting("train-kept") == [item]


def test_the_job_of_a_stopped_execution_is_cancelled_after_a_while(steps: Steps) -> None:
    execution = steps.start("stopped", FOREVER)
    steps.system.wait_state("train-stopped", "running")
    steps.look()
    assert "closed" not in steps.waiting("train-stopped")[0]
    steps.states.stop_execution(executionArn=execution)
    steps.look()
    (item,) = steps.waiting("train-stopped")
    assert time.time() - 300 < item["closed"] <= time.time()
    assert not steps.system.job("train-stopped").cancel_requested
    steps.pass_time("train-stopped", 300)
    steps.look()
    steps.system.wait_state("train-stopped", "stopped")
    until(lambda: not steps.waiting("train-stopped"))


def test_a_lost_event_delays_the_answer_until_the_schedule(steps: Steps) -> None:
    with steps.without_events():
        execution = steps.start("lost", "pass")
        steps.system.wait_state("train-lost", "completed")
        assert steps.states.describe_execution(executionArn=execution)["status"] == "RUNNING"
        steps.look()
        assert steps.end(execution)["status"] == "SUCCEEDED"


@contextmanager
def unreachable_queue(steps: Steps) -> Iterator[None]:
    """Give the function an address at which no server listens."""
    function = steps.outputs["FunctionName"]
    variables = steps.functions.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
    address = f"http://127.0.0.1:{free_ports()}"
    other = {"Variables": {**variables, "QUEUE_URL": address}}
    steps.functions.update_function_configuration(FunctionName=function, Environment=other)
    try:
        yield
    finally:
        steps.functions.update_function_configuration(FunctionName=function, Environment={"Variables": variables})


@pytest.mark.thorough
def test_a_job_whose_submission_was_not_answered_is_cancelled(steps: Steps) -> None:
    script = FOREVER
    execution = steps.start("unanswered", script, steps.machine(lambda train: train.pop("Retry")))
    steps.system.wait_state("train-unanswered", "running")
    (item,) = steps.waiting("train-unanswered")
    arguments = {"TrainingJobName": "train-unanswered", "request": steps.system.request("replaced", script)}
    body = json.dumps({"token": item["token"], "arguments": arguments})
    until(lambda: read(steps) == 0)  # the change of the function would end an invocation that has not finished
    with unreachable_queue(steps):
        steps.invoke({"Records": [{"body": body, "attributes": {"ApproximateReceiveCount": "5"}}]})  # the last delivery
    ended = steps.end(execution)
    assert (ended["status"], ended["error"]) == ("FAILED", "Queue.Unavailable")
    steps.pass_time("train-unanswered", 300)
    steps.look()
    steps.system.wait_state("train-unanswered", "stopped")
    until(lambda: not steps.waiting("train-unanswered"))


def test_an_event_of_a_job_that_runs_answers_no_step(steps: Steps) -> None:
    execution = steps.start("forged", FOREVER)
    steps.system.wait_state("train-forged", "running")
    detail = {"job": "train-forged", "state": "completed", "trainingJobName": "forged"}
    event = {"detail-type": "Training Job Finished", "source": "sagemaker-queue", "detail": detail}
    steps.invoke(event)
    assert steps.states.describe_execution(executionArn=execution)["status"] == "RUNNING"
    assert len(steps.waiting("train-forged")) == 1


# --- SageMaker Pipelines


class Pipelines(ThreadingHTTPServer):
    """The part of SageMaker Pipelines that callback steps need: a run of a definition, and the answers to its steps."""

    daemon_threads = True

    def __init__(self, steps: Steps) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.steps = steps
        self.service = botocore.session.get_session().get_service_model("sagemaker")
        self.waiting: set[str] = set()
        self.answers: dict[str, tuple[str, Json]] = {}
        self.refused = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def send(self, definition: Mapping[str, Any], execution: str, token: str, status: str = "Executing") -> None:
        """Send the message of the only step of a definition."""
        (step,) = definition["Steps"]
        assert step["Type"] == "Callback"
        arn = f"arn:aws:sagemaker:us-east-1:000000000000:pipeline/train-in-the-queue/execution/{execution}"
        arguments = {name: self._value(value, execution) for name, value in step["Arguments"].items()}
        message = {"token": token, "pipelineExecutionArn": arn, "arguments": arguments, "status": status}
        if token not in self.answers:
            self.waiting.add(token)
        self.steps.sqs.send_message(QueueUrl=step["SqsQueueUrl"], MessageBody=json.dumps(message))

    def end(self, token: str) -> tuple[str, Json]:
        """Wait for the answer to a step: the operation and its request."""
        until(lambda: token in self.answers)
        return self.answers[token]

    def _value(self, value: Any, execution: str) -> Any:
        if value == {"Get": "Execution.PipelineExecutionId"}:
            return execution
        if isinstance(value, dict):
            join = value["Std:Join"]
            return str(join["On"]).join(self._value(one, execution) for one in join["Values"])
        return value

    def answer(self, operation: str, request: Json) -> tuple[int, Json]:
        """Record the answer to a step, as the API documents it."""
        shape = self.service.operation_model(operation).input_shape
        assert shape is not None
        report = ParamValidator().validate(request, shape)
        assert not report.has_errors(), report.generate_report()
        token = request["CallbackToken"]
        if token not in self.waiting:
            self.refused += 1
            return 400, {"__type": "ResourceNotFound", "message": "no such step"}
        self.waiting.remove(token)
        self.answers[token] = operation, request
        return 200, {"PipelineExecutionArn": "arn:aws:sagemaker:us-east-1:000000000000:pipeline/p/execution/e"}


class _Answers(BaseHTTPRequestHandler):
    server: Pipelines

    def do_POST(self) -> None:
        assert "/sagemaker/aws4_request" in self.headers["Authorization"]
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = self.server.answer(self.headers["X-Amz-Target"].removeprefix("SageMaker."), request)
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def pipelines(shared_steps: Steps) -> Iterator[Pipelines]:
    server = Pipelines(shared_steps)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    until(lambda: read(shared_steps) == 0)  # the change of the function would end an invocation that has not finished
    function = shared_steps.outputs["FunctionName"]
    variables = shared_steps.functions.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
    changed = {"Variables": {**variables, "AWS_ENDPOINT_URL_SAGEMAKER": server.url}}
    shared_steps.functions.update_function_configuration(FunctionName=function, Environment=changed)
    yield server
    server.shutdown()
    server.server_close()


def definition_of(steps: Steps, script: str) -> Json:
    """Return the example's pipeline as the SageMaker SDK sends it to SageMaker."""
    from sagemaker.session import Session  # only the worker that runs these tests spends the time of this import

    from examples.step_functions.pipeline import training_pipeline

    session = Session(boto_session=steps.system.cloud.boto_session())
    pipeline = training_pipeline(steps.url, steps.system.request("replaced", script), session)
    made: Json = json.loads(pipeline.definition())
    return made


@pytest.mark.thorough
def test_a_callback_step_gets_the_result_of_a_completed_job(steps: Steps, pipelines: Pipelines) -> None:
    pipelines.send(definition_of(steps, "pass"), "abcdefghij01", "goodtoken1")
    operation, request = pipelines.end("goodtoken1")
    assert operation == "SendPipelineExecutionStepSuccess"
    outputs = {parameter["Name"]: parameter["Value"] for parameter in request["OutputParameters"]}
    assert outputs["TrainingJobName"] == "train-abcdefghij01-qstamp-1"
    until(lambda: not steps.waiting("train-abcdefghij01"))


@pytest.mark.thorough
def test_a_callback_step_fails_with_a_reason_of_256_characters(steps: Steps, pipelines: Pipelines) -> None:
    pipelines.send(definition_of(steps, "raise SystemExit('x' * 999)"), "abcdefghij02", "badtoken01")
    operation, request = pipelines.end("badtoken01")
    assert operation == "SendPipelineExecutionStepFailure"
    assert request["FailureReason"].startswith("Queue.JobFailed: train-abcdefghij02: ")


@pytest.mark.thorough
def test_a_stopped_pipeline_cancels_its_job(steps: Steps, pipelines: Pipelines) -> None:
    definition = definition_of(steps, FOREVER)
    pipelines.send(definition, "abcdefghij03", "stoptoken1")
    steps.system.wait_state("train-abcdefghij03", "running")
    steps.look()  # a step of a pipeline has no heartbeat
    assert not steps.system.job("train-abcdefghij03").cancel_requested
    pipelines.send(definition, "abcdefghij03", "stoptoken1", "Stopping")
    operation, request = pipelines.end("stoptoken1")
    assert operation == "SendPipelineExecutionStepFailure"
    assert request["FailureReason"].startswith("Queue.JobStopped: ")
    assert steps.system.state("train-abcdefghij03") == "stopped"


@pytest.mark.thorough
def test_a_stop_that_overtakes_the_first_message_leaves_no_job_alive(steps: Steps, pipelines: Pipelines) -> None:
    definition = definition_of(steps, FOREVER)
    pipelines.send(definition, "abcdefghij04", "latetoken1", "Stopping")
    operation, _ = pipelines.end("latetoken1")
    assert operation == "SendPipelineExecutionStepFailure"
    until(lambda: not steps.waiting("train-abcdefghij04") and read(steps) == 0)
    refused = pipelines.refused
    pipelines.send(definition, "abcdefghij04", "latetoken1")
    until(lambda: pipelines.refused > refused)
    assert steps.system.state("train-abcdefghij04") == "stopped"
    until(lambda: not steps.waiting("train-abcdefghij04"))

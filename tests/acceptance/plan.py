"""What the suite will use of an account, told before it begins and held while it runs."""

from dataclasses import dataclass

LONGEST_SECONDS = 900  # MaxRuntimeInSeconds of every job: nothing runs on if all else fails
USUAL_SECONDS = 240  # of a short job: most of it is the start of the instance and its image

# Which check starts how many training jobs, with how many instances each; an attempt that is preempted counts as well.
TRAINING_JOBS: dict[str, tuple[int, ...]] = {
    "check_jobs.py::check_a_command_runs_and_its_log_is_read": (1,),
    "check_jobs.py::check_a_job_is_preempted_and_goes_on_from_its_checkpoint": (2, 1, 2),
    "check_jobs.py::check_a_gang_starts_as_a_whole": (1, 2),
    "check_jobs.py::check_waiting_and_running_jobs_are_cancelled": (2,),
    "check_jobs.py::check_a_job_that_was_started_past_the_queue_counts": (1, 2),
    "check_jobs.py::check_a_policy_shares_and_is_refused_when_stale": (),
    "check_jobs.py::check_boto3_sees_a_job_under_its_own_name": (1,),
    "check_jobs.py::check_nothing_stands_between_us_and_the_queue": (),
    "check_sdks.py::check_an_estimator_of_the_sdk_v2": (1,),
    "check_sdks.py::check_a_model_trainer_of_the_sdk_v3": (1,),
}
CAPACITY = 2  # instances at once
PROBED_INSTANCES = 4  # of the largest quota that a probe fills
PROBE_JOBS = (1, PROBED_INSTANCES, PROBED_INSTANCES)  # the first and the last are stopped at once


@dataclass(frozen=True)
class Cost:
    """Of the whole suite, in instance-hours."""

    jobs: int
    usual: float
    most: float
    at_once: int = CAPACITY  # instances

    @classmethod
    def of_all(cls) -> "Cost":
        """Add everything up."""
        instances = [count for counts in TRAINING_JOBS.values() for count in counts]
        return cls(len(instances), sum(instances) * USUAL_SECONDS / 3600, sum(instances) * LONGEST_SECONDS / 3600)

    @classmethod
    def of_probes(cls) -> "Cost":
        """Add up the training jobs of the probes: one is run to its end."""
        instances = sum(PROBE_JOBS)
        usual = PROBED_INSTANCES * USUAL_SECONDS / 3600
        return cls(len(PROBE_JOBS), usual, instances * LONGEST_SECONDS / 3600, PROBED_INSTANCES)

    def sentence(self, instance_type: str, price: float | None) -> str:
        """Tell it; ``price`` is of an instance-hour, in the currency of the account."""
        told = (
            f"{self.jobs} training jobs on {instance_type}, at most {self.at_once} instances at once: usually"
            f" {self.usual:.1f} instance-hours, and never more than {self.most:.1f}"
        )
        if price is None:
            return f"{told}. What one costs, https://aws.amazon.com/sagemaker/pricing says (--price multiplies it)."
        return f"{told}; at {price:g} each that is {self.usual * price:.2f}, never more than {self.most * price:.2f}."

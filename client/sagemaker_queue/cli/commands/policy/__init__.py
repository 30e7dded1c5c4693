"""``smq policy``: show, compare, check, preview and apply the policy."""

from sagemaker_queue.cli.commands.policy.advise import policy_advise
from sagemaker_queue.cli.commands.policy.apply import policy_apply, policy_rollback
from sagemaker_queue.cli.commands.policy.check import policy_check
from sagemaker_queue.cli.commands.policy.policy_preview import policy_preview
from sagemaker_queue.cli.commands.policy.versions import policy_diff, policy_history, policy_show
from sagemaker_queue.cli.parser import group

policy = group(
    "policy",
    help="print or change the policy, which shares the fleet",
    description="Print, compare, check or apply the policy: pools, departments, projects and settings.",
    examples=["smq policy show > policy.yaml", "smq policy preview policy.yaml", "smq policy apply policy.yaml"],
)
for command in (
    *(policy_show, policy_history, policy_diff),
    *(policy_check, policy_preview, policy_advise, policy_apply, policy_rollback),
):
    policy.add_command(command)

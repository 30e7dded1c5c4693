"""The template with values in the place of parameters, as CloudFormation fills it in: for what has to fit somewhere."""

import json
import re
from collections.abc import Mapping
from typing import Any

REMOVED = object()
ACCOUNT = "111122223333"


class Filling:
    """Fills in a template for one partition, region and stack name; conditions compare parameters with texts."""

    def __init__(
        self, template: Mapping[str, Any], parameters: Mapping[str, str], partition: str, region: str, stack: str
    ) -> None:
        self._conditions = template["Conditions"]
        self._values = {
            **{name: str(one.get("Default", "")) for name, one in template["Parameters"].items()},
            **parameters,
            "AWS::Partition": partition,
            "AWS::Region": region,
            "AWS::AccountId": ACCOUNT,
            "AWS::StackName": stack,
            "AWS::URLSuffix": "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com",
        }
        self._arn = f"arn:{partition}:SERVICE:{region}:{ACCOUNT}:"

    def fill(self, part: Any) -> Any:
        """Return a part of the template without functions; a list loses what AWS::NoValue stands for."""
        if isinstance(part, list):
            return [made for one in part if (made := self.fill(one)) is not REMOVED]
        if not isinstance(part, dict):
            return part
        if len(part) != 1 or not (key := next(iter(part))).startswith(("Fn::", "Ref", "Condition")):
            return {name: made for name, one in part.items() if (made := self.fill(one)) is not REMOVED}
        return getattr(self, "_" + key.removeprefix("Fn::").lower())(part[key])

    def _ref(self, name: str) -> Any:
        return REMOVED if name == "AWS::NoValue" else self._values.get(name) or self._resource(name)

    def _resource(self, name: str) -> str:
        """Return the longest ARN that a resource of the template may have."""
        if name in self._values:
            return ""
        if name.endswith("Queue"):  # SQS allows 80 characters for a name
            return self._arn.replace("SERVICE", "sqs") + "q" * 80
        if name.endswith("LogGroup"):
            return (
                f"{self._arn.replace('SERVICE', 'logs')}log-group:/aws/lambda/{self._values['AWS::StackName']}-read:*"
            )
        return f"{self._arn.replace('SERVICE', 'kms')}key/mrk-1234abcd12ab34cd56ef1234567890ab"

    def _getatt(self, path: Any) -> str:
        return self._resource((path if isinstance(path, list) else path.split("."))[0])

    def _sub(self, given: Any) -> str:
        text, names = given if isinstance(given, list) else (given, {})
        own = {name: self.fill(value) for name, value in names.items()}
        return re.sub(r"\$\{([\w:]+)\}", lambda found: own.get(found[1]) or self._ref(found[1]), text)

    def _split(self, given: Any) -> list[str]:
        made: str = self.fill(given[1])
        return made.split(given[0])

    def _join(self, given: Any) -> str:
        return str(given[0]).join(self.fill(given[1]))

    def _if(self, given: Any) -> Any:
        return self.fill(given[1] if self._condition(given[0]) else given[2])

    def _or(self, given: Any) -> bool:
        return any(self.fill(one) for one in given)

    def _condition(self, name: str) -> bool:
        return bool(self.fill(self._conditions[name]))

    def _not(self, given: Any) -> bool:
        return not self.fill(given[0])

    def _and(self, given: Any) -> bool:
        return all(self.fill(given))

    def _equals(self, given: Any) -> bool:
        first, second = self.fill(given)
        return bool(first == second)


def size(document: Any) -> int:
    """Return the characters of a document as IAM and Lambda count them: JSON without white space."""
    return len(json.dumps(document, separators=(",", ":")))

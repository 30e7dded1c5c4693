"""Settings that all tests share."""

import os

from hypothesis import HealthCheck, settings

# Importing the SageMaker SDK warns that there is a newer one, and boto3 looks for credentials on the network where it
# finds none.
os.environ["SAGEMAKER_SUPPRESS_V2_WARNING"] = "1"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

# The ordinary run is the same every time, so that it fails for a change and not by chance; new examples are looked for
# by the long one, for a night: pytest --hypothesis-profile=long
# Neither fails because the machine is slow.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ordinary", patient, derandomize=True)
settings.register_profile("long", patient, max_examples=5000)
settings.load_profile("ordinary")

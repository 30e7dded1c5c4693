"""Settings that all tests share."""

import os

from hypothesis import settings

# Importing the SageMaker SDK warns that there is a newer one, and boto3 looks for credentials on the network where it
# finds none.
os.environ["SAGEMAKER_SUPPRESS_V2_WARNING"] = "1"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

# The ordinary run is the same every time, so that it fails for a change and not by chance; new examples are looked for
# by the long one, for a night: pytest --hypothesis-profile=long
settings.register_profile("ordinary", derandomize=True, deadline=None)
settings.register_profile("long", max_examples=5000, deadline=None)
settings.load_profile("ordinary")

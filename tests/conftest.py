"""Settings that all tests share."""

import os

# Importing the SageMaker SDK warns that there is a newer one, and boto3 looks for credentials on the network where it
# finds none.
os.environ["SAGEMAKER_SUPPRESS_V2_WARNING"] = "1"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

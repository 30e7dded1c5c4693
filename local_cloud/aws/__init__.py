"""The AWS services other than SageMaker: ministack, with the real template deployed to it."""

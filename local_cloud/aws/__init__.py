"""AWS around SageMaker: ministack, with the real template deployed to it."""

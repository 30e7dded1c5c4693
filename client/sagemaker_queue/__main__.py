"""Run ``smq`` by ``python -m sagemaker_queue``."""

import sys

from sagemaker_queue.cli import main

sys.exit(main())

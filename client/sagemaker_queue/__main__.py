"""``python -m sagemaker_queue`` is ``smq``."""

import sys

from sagemaker_queue.cli import main

sys.exit(main())

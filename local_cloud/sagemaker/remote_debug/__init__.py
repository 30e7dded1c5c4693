"""Sessions in the containers of training jobs, in place of AWS's Session Manager with its agent and its plugin."""

"""Sessions in the containers of training jobs: what AWS has Session Manager, its agent and its plugin for."""

"""The acceptance suite: the queue as its users meet it, on a local cloud or in a real account.

    make acceptance
    make acceptance STACK=sagemaker-queue PRICE=0.12

It knows nothing but the queue's public API, the command `smq`, boto3 and the SageMaker SDKs: what passes here has to
pass there. `plan` says what it will use, `account` makes jobs and takes everything away again, `check_*` are the tests.
"""

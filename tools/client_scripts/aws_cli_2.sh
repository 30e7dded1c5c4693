# What aws_cli_by_proxy.sh does, by the AWS CLI 2 that Debian 12 has. It is older than AWS_ENDPOINT_URL_SAGEMAKER, which
# the AWS CLI 2 reads since 2.13, and is given the address.
aws() { command aws --endpoint-url "$AWS_ENDPOINT_URL_SAGEMAKER" "$@"; }
. "$(dirname "$0")/aws_cli_by_proxy.sh"

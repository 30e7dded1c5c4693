# Jobs by an AWS CLI without knowledge of the queue: one that completes, and one that is stopped.
set -e
status() { aws sagemaker describe-training-job --training-job-name "$1" --query TrainingJobStatus --output text; }
listed() { aws sagemaker list-training-jobs --name-contains "$1" --query "TrainingJobSummaries[].TrainingJobName" --output text; }

aws sagemaker create-training-job --cli-input-json "file://$1" > created.json
aws sagemaker wait training-job-completed-or-stopped --training-job-name "$2"
test "$(status "$2")" = Completed
listed "$2" | grep -q "$2"

sed "s|$2|$2-again|g" "$1" > again.json
aws sagemaker create-training-job --cli-input-json file://again.json > created.json
aws sagemaker stop-training-job --training-job-name "$2-again"
until [ "$(status "$2-again")" = Stopped ]; do sleep 1; done
aws sagemaker wait training-job-completed-or-stopped --training-job-name "$2-again"

# SageMaker's answers about a name that is taken, and about an unknown name.
aws sagemaker create-training-job --cli-input-json file://again.json --stopping-condition MaxRuntimeInSeconds=60 2> said && exit 1
grep -q "An error occurred (ResourceInUse) when calling the CreateTrainingJob operation" said
aws sagemaker describe-training-job --training-job-name "$2-never" 2> said && exit 1
grep -q "An error occurred (ValidationException) when calling the DescribeTrainingJob operation: Requested resource" said

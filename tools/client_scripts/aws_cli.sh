# A job by the AWS CLI 1, with the plugin in its configuration.
set -e
aws sagemaker create-training-job --cli-input-json "file://$1" > created.json
aws sagemaker wait training-job-completed-or-stopped --training-job-name "$2"
test "$(aws sagemaker describe-training-job --training-job-name "$2" --query TrainingJobStatus --output text)" = Completed
listed=$(aws sagemaker list-training-jobs --name-contains "$2" --query 'TrainingJobSummaries[].TrainingJobName' --output text)
case " $(echo $listed) " in *-qstamp-*) echo "attempts are listed: $listed"; exit 1 ;; *" $2 "*) ;; *) echo "not listed: $listed"; exit 1 ;; esac
aws s3 ls > /dev/null

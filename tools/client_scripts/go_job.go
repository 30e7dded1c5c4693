// A job by the AWS SDK for Go 2: created, waited for and described; then the error for an unknown job.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker/types"
	"github.com/aws/smithy-go"
)

func main() {
	ctx := context.Background()
	content, err := os.ReadFile(os.Args[1])
	check(err == nil, err)
	request := new(sagemaker.CreateTrainingJobInput) // its fields have the names of the API
	err = json.Unmarshal(content, request)
	check(err == nil, err)
	settings, err := config.LoadDefaultConfig(ctx)
	check(err == nil, err)
	client := sagemaker.NewFromConfig(settings)
	created, err := client.CreateTrainingJob(ctx, request)
	check(err == nil, err)

	name := &sagemaker.DescribeTrainingJobInput{TrainingJobName: request.TrainingJobName}
	waiter := sagemaker.NewTrainingJobCompletedOrStoppedWaiter(client, func(o *sagemaker.TrainingJobCompletedOrStoppedWaiterOptions) {
		o.MinDelay, o.MaxDelay = time.Second, time.Second
	})
	described, err := waiter.WaitForOutput(ctx, name, time.Hour)
	check(err == nil, err)
	check(described.TrainingJobStatus == types.TrainingJobStatusCompleted, described)
	check(*described.TrainingJobArn == *created.TrainingJobArn, described)
	check(!described.CreationTime.After(*described.TrainingEndTime), described)

	one := int32(1)
	pages := sagemaker.NewListTrainingJobsPaginator(client, &sagemaker.ListTrainingJobsInput{NameContains: request.TrainingJobName, MaxResults: &one})
	listed := 0
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		check(err == nil, err)
		for _, summary := range page.TrainingJobSummaries {
			check(!strings.Contains(*summary.TrainingJobName, "-qstamp-"), summary)
			listed++
		}
	}
	check(listed > 0, listed)

	never := "never"
	_, err = client.DescribeTrainingJob(ctx, &sagemaker.DescribeTrainingJobInput{TrainingJobName: &never})
	var said smithy.APIError
	check(errors.As(err, &said), err)
	check(said.ErrorCode() == "ValidationException" && strings.HasPrefix(said.ErrorMessage(), "Requested resource not found"), err)
}

func check(holds bool, shown any) {
	if !holds {
		log.Fatal(shown)
	}
}

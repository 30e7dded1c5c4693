// A job by the AWS SDK for JavaScript 3: created, waited for and described; then the error for an unknown job.
const assert = require("node:assert");
const { readFileSync } = require("node:fs");
const sagemaker = require("@aws-sdk/client-sagemaker");

async function main() {
  const request = JSON.parse(readFileSync(process.argv[2]));
  const client = new sagemaker.SageMakerClient({});
  const name = { TrainingJobName: request.TrainingJobName };
  const { TrainingJobArn } = await client.send(new sagemaker.CreateTrainingJobCommand(request));
  const waiting = { client, maxWaitTime: 3600, minDelay: 1, maxDelay: 1 };
  await sagemaker.waitUntilTrainingJobCompletedOrStopped(waiting, name);
  const described = await client.send(new sagemaker.DescribeTrainingJobCommand(name));
  assert.deepStrictEqual([described.TrainingJobArn, described.TrainingJobStatus], [TrainingJobArn, "Completed"]);
  assert(described.CreationTime instanceof Date && described.CreationTime <= described.TrainingEndTime);

  const names = [];
  for await (const page of sagemaker.paginateListTrainingJobs({ client, pageSize: 1 }, { NameContains: name.TrainingJobName }))
    names.push(...page.TrainingJobSummaries.map((one) => one.TrainingJobName));
  assert(names.length && names.every((one) => one.startsWith(name.TrainingJobName)), names);

  const missing = client.send(new sagemaker.DescribeTrainingJobCommand({ TrainingJobName: "never" }));
  await assert.rejects(missing, { name: "ValidationException", message: /^Requested resource not found/ });
}

main().catch((error) => {
  console.error(String(error.stack));
  process.exit(1);
});

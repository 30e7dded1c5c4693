// A job by the AWS SDK for Java 2: created, waited for and described; then the error for an unknown job.

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.stream.Collectors;
import software.amazon.awssdk.protocols.jsoncore.JsonNode;
import software.amazon.awssdk.retries.api.BackoffStrategy;
import software.amazon.awssdk.services.sagemaker.SageMakerClient;
import software.amazon.awssdk.services.sagemaker.model.*;

public class JavaJob {
    public static void main(String[] arguments) throws Exception {
        String name = arguments[0];
        JsonNode job = JsonNode.parser().parse(Files.readString(Path.of(arguments[1])));
        SageMakerClient sagemaker = SageMakerClient.create();
        String arn = sagemaker.createTrainingJob(requestOf(name, job)).trainingJobArn();

        sagemaker.waiter().waitUntilTrainingJobCompletedOrStopped(
            request -> request.trainingJobName(name),
            waiting -> waiting
                .maxAttempts(3600)
                .backoffStrategyV2(BackoffStrategy.fixedDelay(Duration.ofSeconds(1))));
        DescribeTrainingJobResponse described = sagemaker.describeTrainingJob(request -> request.trainingJobName(name));
        check(described.trainingJobStatus() == TrainingJobStatus.COMPLETED, described);
        check(described.trainingJobArn().equals(arn), described);
        check(!described.creationTime().isAfter(described.trainingEndTime()), described);

        long listed = sagemaker.listTrainingJobsPaginator(request -> request.nameContains(name).maxResults(1))
            .trainingJobSummaries().stream().filter(one -> one.trainingJobName().startsWith(name)).count();
        check(listed > 0, listed);
        try {
            sagemaker.describeTrainingJob(request -> request.trainingJobName("never"));
            check(false, "a job that is not there");
        } catch (SageMakerException error) {
            check(error.awsErrorDetails().errorCode().equals("ValidationException"), error);
            check(error.awsErrorDetails().errorMessage().startsWith("Requested resource not found"), error);
        }
    }

    static CreateTrainingJobRequest requestOf(String name, JsonNode job) {
        JsonNode algorithm = member(job, "AlgorithmSpecification");
        JsonNode resources = member(job, "ResourceConfig");
        Map<String, String> environment = member(job, "Environment").asObject().entrySet().stream()
            .collect(Collectors.toMap(Map.Entry::getKey, entry -> entry.getValue().asString()));
        return CreateTrainingJobRequest.builder()
            .trainingJobName(name)
            .roleArn(text(job, "RoleArn"))
            .algorithmSpecification(specification -> specification
                .trainingImage(text(algorithm, "TrainingImage"))
                .trainingInputMode(text(algorithm, "TrainingInputMode"))
                .containerEntrypoint(member(algorithm, "ContainerEntrypoint").asArray().stream()
                    .map(JsonNode::asString).collect(Collectors.toList())))
            .environment(environment)
            .outputDataConfig(output -> output.s3OutputPath(text(member(job, "OutputDataConfig"), "S3OutputPath")))
            .resourceConfig(config -> config
                .instanceType(text(resources, "InstanceType"))
                .instanceCount(Integer.parseInt(member(resources, "InstanceCount").asNumber()))
                .volumeSizeInGB(Integer.parseInt(member(resources, "VolumeSizeInGB").asNumber())))
            .stoppingCondition(condition -> condition.maxRuntimeInSeconds(3600))
            .checkpointConfig(checkpoints -> checkpoints.s3Uri(text(member(job, "CheckpointConfig"), "S3Uri")))
            .tags(Tag.builder().key("priority").value("1").build())
            .build();
    }

    static JsonNode member(JsonNode node, String name) {
        return node.field(name).orElseThrow();
    }

    static String text(JsonNode node, String name) {
        return member(node, name).asString();
    }

    static void check(boolean holds, Object shown) {
        if (!holds) {
            throw new AssertionError(shown);
        }
    }
}

// A job by the AWS SDK for Rust: created, polled to its end and listed; then the error for an unknown job.
use aws_sdk_sagemaker::error::ProvideErrorMetadata;
use aws_sdk_sagemaker::types::{
    AlgorithmSpecification, CheckpointConfig, OutputDataConfig, ResourceConfig, StoppingCondition, Tag,
    TrainingInputMode, TrainingInstanceType, TrainingJobStatus,
};
use serde_json::Value;
use std::time::Duration;

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let job: Value = serde_json::from_str(&std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap()).unwrap();
    let name = text(&job["TrainingJobName"]);
    let (algorithm, resources) = (&job["AlgorithmSpecification"], &job["ResourceConfig"]);
    let client = aws_sdk_sagemaker::Client::new(&aws_config::load_defaults(aws_config::BehaviorVersion::latest()).await);

    let mut program = AlgorithmSpecification::builder()
        .training_image(text(&algorithm["TrainingImage"]))
        .training_input_mode(TrainingInputMode::File);
    for word in algorithm["ContainerEntrypoint"].as_array().unwrap() {
        program = program.container_entrypoint(text(word));
    }
    let created = client
        .create_training_job()
        .training_job_name(name)
        .role_arn(text(&job["RoleArn"]))
        .algorithm_specification(program.build())
        .environment("SCRIPT", text(&job["Environment"]["SCRIPT"]))
        .output_data_config(OutputDataConfig::builder().s3_output_path(text(&job["OutputDataConfig"]["S3OutputPath"])).build())
        .resource_config(
            ResourceConfig::builder()
                .instance_type(TrainingInstanceType::from(text(&resources["InstanceType"])))
                .instance_count(1)
                .volume_size_in_gb(30)
                .build(),
        )
        .stopping_condition(StoppingCondition::builder().max_runtime_in_seconds(3600).build())
        .checkpoint_config(CheckpointConfig::builder().s3_uri(text(&job["CheckpointConfig"]["S3Uri"])).build())
        .tags(Tag::builder().key("priority").value("1").build())
        .send()
        .await
        .unwrap();

    // The SDK's waiter polls every two minutes only.
    let described = loop {
        let described = client.describe_training_job().training_job_name(name).send().await.unwrap();
        if described.training_job_status() != Some(&TrainingJobStatus::InProgress) {
            break described;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    assert_eq!(described.training_job_status(), Some(&TrainingJobStatus::Completed), "{described:?}");
    assert_eq!(described.training_job_arn(), created.training_job_arn());
    assert!(described.creation_time() <= described.training_end_time(), "{described:?}");

    let mut pages = client.list_training_jobs().name_contains(name).max_results(1).into_paginator().send();
    let mut listed = vec![];
    while let Some(page) = pages.next().await {
        listed.extend(page.unwrap().training_job_summaries.unwrap_or_default());
    }
    let names: Vec<_> = listed.iter().filter_map(|one| one.training_job_name()).collect();
    assert!(names.contains(&name) && names.iter().all(|one| !one.contains("-qstamp-")), "{names:?}");

    let said = client.describe_training_job().training_job_name("never").send().await.unwrap_err();
    assert_eq!(said.code(), Some("ValidationException"), "{said:?}");
    assert!(said.message().unwrap().starts_with("Requested resource not found"), "{said:?}");
}

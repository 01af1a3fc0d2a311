//! Conversion of a submission's body to jobs for the engine.
//!
//! This is the hot path of the API: a body is parsed directly into specs, and each spec is validated and serialized
//! once. The stored spec is complete: every default is filled in.
//!
//! Steps: [`parse`] the body, [`fill_in`] owner and idempotency keys, [`prepare`] the jobs. The idempotency keys of
//! triggers, starts and retries are computed here too. A key is hashed with its namespace, and the content of its
//! request separately, so that a reused key with another content is refused.

use std::sync::Arc;

use engine::NewJob;
use engine::input::Key;
use model::api::{FieldError, RetryRun, StartDefinition, StartRun, SubmitJobs, TriggerSchedule};
use model::limits::{BATCH_JOBS_MAX, BODY_BYTES_MAX, SPEC_BYTES_MAX};
use model::record::JobHead;
use model::{JobId, JobSpec, RunId, ScheduleId, Timestamp, WorkflowId, validate};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::extract::Format;
use super::problem::{ApiError, Code, field_error};
use crate::auth::Actor;
use crate::clock::{Clock as _, SystemClock};
use crate::hash::short_hash;

/// A parsed submission.
#[derive(Debug)]
pub(super) enum Submission {
    /// A single job.
    One(Box<JobSpec>),
    /// A batch; all its jobs are accepted, or none.
    Many(Vec<JobSpec>),
}

/// Distinguishes a batch from a single job; skips all other fields.
#[derive(Deserialize)]
struct Shape {
    #[serde(default)]
    jobs: Option<IgnoredAny>,
}

/// Parses a submission.
///
/// # Errors
/// Same as [`Format::parse`]. Also for a batch with no jobs or too many, and for a single job that exceeds the body
/// limit of single jobs.
pub(super) fn parse(format: Format, body: &[u8]) -> Result<Submission, ApiError> {
    // A batch fails at its first key, so trying a single job first costs little.
    if let Some(spec) = format.read::<JobSpec>(body) {
        return one(spec, body.len());
    }
    if format.read::<Shape>(body).is_none_or(|shape| shape.jobs.is_none()) {
        return one(format.parse_checked(body, |spec| wrong_fields("", spec))?, body.len());
    }
    let SubmitJobs { jobs } = format.parse_checked(body, |batch: &SubmitJobs| {
        let all = batch.jobs.iter().enumerate();
        all.flat_map(|(i, spec)| wrong_fields(&format!("jobs[{i}]"), spec)).collect()
    })?;
    let wrong = match jobs.len() {
        0 => "is empty: expected at least one job".to_owned(),
        count if count > BATCH_JOBS_MAX => format!("has {count} entries: expected at most {BATCH_JOBS_MAX}"),
        _ => return Ok(Submission::Many(jobs)),
    };
    Err(ApiError::invalid_fields(vec![field_error("jobs", &wrong)]))
}

fn one(spec: JobSpec, bytes: usize) -> Result<Submission, ApiError> {
    if bytes > BODY_BYTES_MAX {
        let detail =
            format!("the body has {bytes} bytes: expected at most {BODY_BYTES_MAX} for a single job");
        return Err(ApiError::new(Code::BodyTooLarge, detail));
    }
    Ok(Submission::One(Box::new(spec)))
}

/// Returns the problems of a parsed job.
fn wrong_fields(at: &str, spec: &JobSpec) -> Vec<FieldError> {
    let Err(invalid) = validate::job(spec, SystemClock.now()) else { return Vec::new() };
    invalid.problems.iter().map(|p| field_error(&join(at, &p.path), &p.message)).collect()
}

/// Fills in the owner of the jobs, and their idempotency keys from the header.
///
/// # Errors
/// `invalid_spec` if header and body have different keys.
pub(super) fn fill_in(submission: &mut Submission, key: Option<&str>, actor: &Actor) -> Result<(), ApiError> {
    let own = |spec: &mut JobSpec| {
        spec.owner.get_or_insert_with(|| actor.name.to_string());
    };
    match submission {
        Submission::One(spec) => {
            own(spec);
            match (key, &spec.idempotency_key) {
                (Some(header), Some(body)) if header != body => {
                    let wrong = "differs from the header `Idempotency-Key`: send one of them, or the same value in both";
                    return Err(ApiError::invalid_fields(vec![field_error("idempotency_key", wrong)]));
                }
                (Some(header), None) => spec.idempotency_key = Some(header.to_owned()),
                _ => {}
            }
        }
        Submission::Many(specs) => {
            for (index, spec) in specs.iter_mut().enumerate() {
                own(spec);
                if let (Some(header), None) = (key, &spec.idempotency_key) {
                    spec.idempotency_key = Some(format!("{header}/{index}"));
                }
            }
        }
    }
    Ok(())
}

/// Validates the jobs, and converts them for the engine.
///
/// # Errors
/// `invalid_spec` with every invalid field of every job.
pub(super) fn prepare(
    submission: Submission,
    actor: &Actor,
    now: Timestamp,
) -> Result<Vec<NewJob>, ApiError> {
    let mut errors = Vec::new();
    let mut jobs = Vec::new();
    let mut add = |at: &str, spec: JobSpec| match new_job(spec, None, actor, now) {
        Ok(job) => jobs.push(job),
        Err(wrong) => {
            errors.extend(wrong.into_iter().map(|error| field_error(&join(at, &error.path), &error.detail)))
        }
    };
    match submission {
        Submission::One(spec) => add("", *spec),
        Submission::Many(specs) => {
            specs.into_iter().enumerate().for_each(|(i, spec)| add(&format!("jobs[{i}]"), spec));
        }
    }
    if errors.is_empty() { Ok(jobs) } else { Err(ApiError::invalid_fields(errors)) }
}

fn join(at: &str, path: &str) -> String {
    match (at, path) {
        ("", path) => path.to_owned(),
        (at, "") => at.to_owned(),
        (at, path) => format!("{at}.{path}"),
    }
}

/// Converts a complete spec to a job for the engine.
///
/// # Errors
/// Every invalid field.
pub(super) fn new_job(
    spec: JobSpec,
    retry_of: Option<JobId>,
    actor: &Actor,
    now: Timestamp,
) -> Result<NewJob, Vec<FieldError>> {
    let head = head(spec, retry_of, now)?;
    let key = head.spec.idempotency_key.as_deref().map(|key| Key {
        key: short_hash(&[head.spec.namespace.as_bytes(), key.as_bytes()]),
        body: body_hash(&head),
    });
    Ok(NewJob { head: Arc::new(head), key, actor: Arc::clone(&actor.name), ended: Vec::new() })
}

/// Validates a spec and serializes it.
///
/// # Errors
/// Every invalid field.
pub(super) fn head(
    spec: JobSpec,
    retry_of: Option<JobId>,
    now: Timestamp,
) -> Result<JobHead, Vec<FieldError>> {
    validate::job(&spec, now).map_err(|invalid| {
        invalid.problems.iter().map(|p| field_error(&p.path, &p.message)).collect::<Vec<_>>()
    })?;
    let body = spec.compact_json();
    if body.len() > SPEC_BYTES_MAX {
        let wrong = format!(
            "the spec has {} bytes as JSON: expected at most {SPEC_BYTES_MAX}; put large data into an artifact",
            body.len()
        );
        return Err(vec![field_error("", &wrong)]);
    }
    Ok(JobHead { spec: Arc::new(spec), body: body.into(), retry_of, origin: None, step: None, replica: None })
}

/// Returns the idempotency key of a trigger; a repeated request must have the same content.
pub(super) fn trigger_key(schedule: ScheduleId, key: &str, asked: &TriggerSchedule) -> Key {
    key_of("trigger", &schedule.to_string(), key, asked)
}

/// Returns the idempotency key of starting a run; a repeated request must have the same content.
pub(super) fn start_key(workflow: WorkflowId, key: &str, asked: &StartRun) -> Key {
    key_of("start", &workflow.to_string(), key, asked)
}

/// Returns the idempotency key of starting an inline definition.
pub(super) fn definition_key(key: &str, asked: &StartDefinition) -> Key {
    key_of("start", &asked.definition.namespace, key, asked)
}

/// Returns the idempotency key of retrying a run.
pub(super) fn retry_key(run: RunId, key: &str, asked: &RetryRun) -> Key {
    key_of("retry", &run.to_string(), key, asked)
}

fn key_of(what: &str, whose: &str, key: &str, asked: &impl serde::Serialize) -> Key {
    let body = serde_json::to_vec(asked).unwrap_or_default();
    Key {
        key: short_hash(&[what.as_bytes(), whose.as_bytes(), key.as_bytes()]),
        body: short_hash(&[whose.as_bytes(), &body]),
    }
}

/// Hashes the part of a submission that must be equal in a repeated request: the spec without its key, in normal form,
/// and the job that it retries.
fn body_hash(head: &JobHead) -> u128 {
    let mut spec = JobSpec::clone(&head.spec);
    spec.idempotency_key = None;
    // It was serialized with its key before, so this cannot fail.
    let body = serde_json::to_vec(&spec).unwrap_or_default();
    let repeated = head.retry_of.map(JobId::to_bits).unwrap_or_default().to_be_bytes();
    short_hash(&[&body, &repeated])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Identity, Resource, Verb};

    fn actor() -> Actor {
        Actor::new(Identity::admin("ann"), Verb::Create, Resource::Jobs)
    }

    fn jobs(body: &str, key: Option<&str>) -> Result<Vec<NewJob>, String> {
        let shown = |error: ApiError| error.into_problem(None).detail;
        let mut submission = parse(Format::Json, body.as_bytes()).map_err(shown)?;
        fill_in(&mut submission, key, &actor()).map_err(shown)?;
        prepare(submission, &actor(), Timestamp::from_millis(0)).map_err(shown)
    }

    const RUN: &str = r#""run": {"process": {"command": ["true"]}}"#;

    #[test]
    fn a_stored_spec_has_all_defaults_and_an_owner() {
        let jobs = jobs(&format!("{{{RUN}}}"), None).unwrap();
        insta::assert_snapshot!(jobs[0].head.body);
    }

    #[test]
    fn one_job_and_a_batch_are_distinguished() {
        assert_eq!(jobs(&format!("{{{RUN}}}"), None).unwrap().len(), 1);
        assert_eq!(jobs(&format!(r#"{{"jobs": [{{{RUN}}}, {{{RUN}}}]}}"#), None).unwrap().len(), 2);
        insta::assert_snapshot!(jobs(r#"{"jobs": []}"#, None).unwrap_err(), @"jobs: is empty: expected at least one job");
    }

    #[test]
    fn every_wrong_job_of_a_batch_is_named() {
        let body =
            format!(r#"{{"jobs": [{{{RUN}, "name": "a b"}}, {{{RUN}}}, {{{RUN}, "priority": 200}}]}}"#);
        let submission = parse(Format::Json, body.as_bytes()).unwrap();
        let error = prepare(submission, &actor(), Timestamp::from_millis(0)).unwrap_err();
        let pointers: Vec<_> = error.into_problem(None).errors.into_iter().map(|e| e.pointer).collect();
        assert_eq!(pointers, ["/jobs/0/name", "/jobs/2/priority"]);
    }

    #[test]
    fn every_wrong_field_of_every_kind_is_named_at_once() {
        let wrong = |body: &str| {
            let problem = parse(Format::Json, body.as_bytes()).unwrap_err().into_problem(None);
            problem.errors.into_iter().map(|error| error.path).collect::<Vec<_>>()
        };
        let one = format!(r#"{{{RUN}, "name": "bad/name", "priority": 900, "timeout": "5", "prio": 1}}"#);
        assert_eq!(wrong(&one), ["prio", "priority", "timeout", "name"]);
        let empty = r#""run": {"process": {"command": []}}"#;
        let batch = format!(r#"{{"jobs": [{{{empty}}}, {{{RUN}, "prio": 1}}, 5, {{{RUN}, "queue": 3}}]}}"#);
        assert_eq!(wrong(&batch), ["jobs[1].prio", "jobs[2]", "jobs[3].queue", "jobs[0].run.process"]);
    }

    #[test]
    fn an_invalid_field_in_a_batch_is_located() {
        let body = format!(r#"{{"jobs": [{{{RUN}}}, {{{RUN}, "timeout": 5}}]}}"#);
        insta::assert_snapshot!(jobs(&body, None).unwrap_err());
    }

    #[test]
    fn a_key_of_the_header_is_numbered_for_a_batch() {
        let body = format!(r#"{{"jobs": [{{{RUN}}}, {{{RUN}, "idempotency_key": "own"}}]}}"#);
        let jobs = jobs(&body, Some("k")).unwrap();
        let keys: Vec<_> = jobs.iter().map(|j| j.head.spec.idempotency_key.as_deref()).collect();
        assert_eq!(keys, [Some("k/0"), Some("own")]);
    }

    #[test]
    fn a_key_of_the_header_must_not_contradict_the_body() {
        let body = format!(r#"{{{RUN}, "idempotency_key": "a"}}"#);
        assert!(jobs(&body, Some("a")).is_ok());
        insta::assert_snapshot!(jobs(&body, Some("b")).unwrap_err(), @"idempotency_key: differs from the header `Idempotency-Key`: send one of them, or the same value in both");
    }

    #[test]
    fn the_same_submission_has_the_same_hashes_however_it_is_written() {
        let key = |body: &str, header| jobs(body, header).unwrap().remove(0).key;
        let one = key(&format!(r#"{{{RUN}, "priority": 50}}"#), Some("k")).unwrap();
        let same = key(&format!(r#"{{ "idempotency_key": "k", {RUN} }}"#), None).unwrap();
        assert_eq!(one, same);
        let other_body = key(&format!(r#"{{{RUN}, "priority": 51}}"#), Some("k")).unwrap();
        assert!(other_body.key == one.key && other_body.body != one.body);
        let other_namespace = key(&format!(r#"{{{RUN}, "namespace": "x"}}"#), Some("k")).unwrap();
        assert_ne!(other_namespace.key, one.key);
        assert_eq!(key(&format!("{{{RUN}}}"), None), None);
    }

    #[test]
    fn a_retry_is_not_the_same_submission_as_its_job() {
        let spec = JobSpec { idempotency_key: Some("k".into()), ..JobSpec::command(["true"]) };
        let hash = |retry_of| {
            new_job(spec.clone(), retry_of, &actor(), Timestamp::default()).unwrap().key.unwrap().body
        };
        assert_ne!(hash(None), hash(Some(JobId::from_bits(1))));
    }

    #[test]
    fn a_spec_has_a_maximum_size() {
        let mut spec = JobSpec::command(["cat"]);
        let model::spec::Run::Process(process) = &mut spec.run else { return };
        process.stdin = Some("x".repeat(SPEC_BYTES_MAX));
        let wrong = head(spec, None, Timestamp::default()).unwrap_err();
        assert!(wrong[0].detail.contains("expected at most 262144"), "{wrong:?}");
    }
}

//! Jobs that start after other jobs (`after`).

use engine::{Input, NewJob};
use model::limits::DOWNSTREAM_JOBS_MAX;
use model::spec::{UpstreamCondition, UpstreamJob};
use model::why::Reason;
use model::{JobId, JobStatus, Refusal};

use crate::scenario::{JobBuilder, Scenario};

trait After {
    fn after(self, job: JobId, condition: UpstreamCondition) -> Self;
}

impl After for JobBuilder<'_> {
    fn after(self, job: JobId, condition: UpstreamCondition) -> Self {
        self.spec(|spec| spec.after.push(UpstreamJob { job, condition }))
    }
}

/// A3.
#[test]
fn a_job_starts_after_all_its_upstream_jobs() {
    let mut t = Scenario::new();
    t.worker().join();
    let (a, b) = (t.job().submit(), t.job().submit());
    let job = t.job().after(a, UpstreamCondition::Success).after(b, UpstreamCondition::Any).submit();
    t.succeed(a);
    assert_eq!(t.status(job), JobStatus::Ready);
    t.fail(b, 1);
    t.succeed(job);
    insta::assert_snapshot!(t.history(job), @"ready (submitted) → waiting (dependencies_satisfied) → running (placed) → succeeded (succeeded)");
}

#[test]
fn each_condition_accepts_its_ends_and_the_others_cancel_the_job() {
    let mut t = Scenario::new();
    t.worker().join();
    for (succeeds, condition, expected) in [
        (true, UpstreamCondition::Success, JobStatus::Running),
        (true, UpstreamCondition::Failure, JobStatus::Cancelled),
        (true, UpstreamCondition::Any, JobStatus::Running),
        (false, UpstreamCondition::Success, JobStatus::Cancelled),
        (false, UpstreamCondition::Failure, JobStatus::Running),
        (false, UpstreamCondition::Any, JobStatus::Running),
    ] {
        let upstream = t.job().submit();
        let job = t.job().after(upstream, condition).submit();
        if succeeds {
            t.succeed(upstream)
        } else {
            t.fail(upstream, 1)
        }
        assert_eq!(t.status(job), expected, "{succeeds} {condition}");
    }
}

/// A cancelled job takes along what waited for its success or failure, but not what waited for its end.
#[test]
fn the_end_of_a_job_reaches_a_whole_chain() {
    let mut t = Scenario::new();
    let first = t.job().submit();
    let mut chain = vec![first];
    for _ in 0..1_000 {
        let last = *chain.last().unwrap();
        chain.push(t.job().after(last, UpstreamCondition::Success).submit());
    }
    let last = t.job().after(*chain.last().unwrap(), UpstreamCondition::Any).submit();
    t.cancel(first).unwrap();
    t.flush();
    assert!(chain.iter().all(|job| t.status(*job) == JobStatus::Cancelled));
    assert_eq!(t.status(last), JobStatus::Waiting);
}

#[test]
fn a_retried_upstream_job_has_not_ended() {
    let mut t = Scenario::new();
    t.worker().join();
    let upstream = t.job().retries(1).submit();
    let job = t.job().after(upstream, UpstreamCondition::Success).submit();
    t.fail(upstream, 1);
    assert_eq!(t.status(job), JobStatus::Ready);
    t.pass(10);
    t.succeed(upstream);
    assert_eq!(t.status(job), JobStatus::Running);
}

/// A2. Both the time and the upstream jobs must be reached.
#[test]
fn a_job_also_waits_for_its_time() {
    let mut t = Scenario::new();
    t.worker().join();
    let upstream = t.job().submit();
    let later = t.job().in_seconds(60).after(upstream, UpstreamCondition::Success).submit();
    let sooner = t.job().in_seconds(1).after(upstream, UpstreamCondition::Success).submit();
    t.pass(10);
    assert_eq!((t.status(later), t.status(sooner)), (JobStatus::Ready, JobStatus::Ready));
    t.succeed(upstream);
    assert_eq!((t.status(later), t.status(sooner)), (JobStatus::Ready, JobStatus::Running));
    t.pass(60);
    assert_eq!(t.status(later), JobStatus::Running);
}

#[test]
fn a_start_deadline_and_a_cancel_end_the_waiting() {
    let mut t = Scenario::new();
    let upstream = t.job().submit();
    let late = t.job().deadline(5).after(upstream, UpstreamCondition::Success).submit();
    let cancelled = t.job().after(upstream, UpstreamCondition::Success).submit();
    t.cancel(cancelled).unwrap();
    t.pass(6);
    assert_eq!((t.status(late), t.status(cancelled)), (JobStatus::Expired, JobStatus::Cancelled));
    t.worker().join();
    t.succeed(upstream);
}

/// D5. The row of a job says which upstream jobs have not ended.
#[test]
fn a_restart_changes_nothing() {
    let mut t = Scenario::new();
    t.worker().join();
    let (a, b) = (t.job().submit(), t.job().submit());
    let job = t.job().after(a, UpstreamCondition::Success).after(b, UpstreamCondition::Failure).submit();
    t.succeed(a);
    t.restart();
    assert_eq!(t.state(job).upstream.len(), 1);
    t.rejoin_all();
    t.fail(b, 1);
    assert_eq!(t.status(job), JobStatus::Running);
}

#[test]
fn an_update_keeps_a_job_waiting() {
    let mut t = Scenario::new();
    t.worker().join();
    let upstream = t.job().submit();
    let job = t.job().after(upstream, UpstreamCondition::Success).submit();
    let head = t.job().after(upstream, UpstreamCondition::Success).priority(90).head();
    let actor = "alice".into();
    t.ask(|ticket| Input::Update { ticket, job, head, expected_version: None, actor }).unwrap();
    t.flush();
    assert_eq!(t.status(job), JobStatus::Ready);
    t.succeed(upstream);
    assert_eq!(t.status(job), JobStatus::Running);
}

#[test]
fn the_caller_tells_the_ends_that_the_engine_no_longer_has() {
    let mut t = Scenario::new();
    t.worker().join();
    let upstream = t.job().submit();
    t.succeed(upstream);
    let refused = t.job().after(upstream, UpstreamCondition::Success).try_submit();
    assert_eq!(refused.unwrap_err(), Refusal::UpstreamJobNotFound { index: 0, job: upstream });
    let mut submit = |condition, status| {
        let head = t.job().after(upstream, condition).head();
        let new = NewJob { head, key: None, actor: "alice".into(), ended: vec![(upstream, status)] };
        let reply = t.ask(|ticket| Input::Submit { ticket, jobs: vec![new] }).unwrap();
        t.flush();
        let engine::Reply::Submitted(submitted) = reply else { panic!("{reply:?}") };
        let last = t.state(submitted[0].job).history.last().unwrap();
        (last.to, last.detail.clone())
    };
    assert_eq!(submit(UpstreamCondition::Success, JobStatus::Succeeded).0, JobStatus::Running);
    let (status, detail) = submit(UpstreamCondition::Success, JobStatus::Failed);
    assert_eq!(status, JobStatus::Cancelled);
    assert_eq!(detail, Some(format!("upstream job `{upstream}` ended as failed").into()));
}

/// E7. An idempotency key returns the first job also after its upstream jobs were deleted.
#[test]
fn a_repeated_submission_needs_no_upstream_job() {
    let mut t = Scenario::new();
    t.worker().join();
    let upstream = t.job().submit();
    let first = t.job().key(1, 1).after(upstream, UpstreamCondition::Success).submit();
    t.succeed(upstream);
    let again = t.job().key(1, 1).after(upstream, UpstreamCondition::Success).try_submit().unwrap();
    assert_eq!((again.job, again.new), (first, false));
}

#[test]
fn why_names_the_upstream_jobs_that_have_not_ended() {
    let mut t = Scenario::new();
    let (a, b) = (t.job().submit(), t.job().in_seconds(60).submit());
    let job = t.job().in_seconds(5).after(a, UpstreamCondition::Any).after(b, UpstreamCondition::Failure);
    let job = job.submit();
    let reasons = t.why(job);
    let [Reason::UpstreamJobs { jobs }, Reason::NotDue { .. }] = &reasons[..] else { panic!("{reasons:?}") };
    let found: Vec<_> = jobs.iter().map(|of| (of.job, of.condition, of.status)).collect();
    let expected = [
        (a, UpstreamCondition::Any, Some(JobStatus::Waiting)),
        (b, UpstreamCondition::Failure, Some(JobStatus::Ready)),
    ];
    assert_eq!(found, expected);
    t.pass(6);
    assert_eq!(t.why(job).len(), 1);
}

/// E7. The end of a job and its effect on others are one commit.
#[test]
fn a_bounded_number_of_jobs_can_wait_for_one() {
    let mut t = Scenario::new();
    let (upstream, other) = (t.job().submit(), t.job().submit());
    let head = t.job().after(upstream, UpstreamCondition::Any).head();
    let new = NewJob { head, key: None, actor: "alice".into(), ended: Vec::new() };
    let submit = |t: &mut Scenario, count| {
        let jobs = vec![new.clone(); count];
        t.ask(|ticket| Input::Submit { ticket, jobs }).map(drop)
    };
    let refused =
        |index| Err(Refusal::DownstreamJobLimit { index, job: upstream, limit: DOWNSTREAM_JOBS_MAX });
    assert_eq!(submit(&mut t, DOWNSTREAM_JOBS_MAX + 1), refused(DOWNSTREAM_JOBS_MAX));
    assert_eq!(submit(&mut t, DOWNSTREAM_JOBS_MAX), Ok(()));
    assert_eq!(submit(&mut t, 1), refused(0));
    let free = t.job().after(other, UpstreamCondition::Any).submit();
    t.cancel(upstream).unwrap();
    t.flush();
    assert_eq!(
        t.rows.jobs.values().filter(|(_, state)| state.status == JobStatus::Waiting).count(),
        DOWNSTREAM_JOBS_MAX + 1
    );
    assert_eq!(t.status(free), JobStatus::Ready);
}

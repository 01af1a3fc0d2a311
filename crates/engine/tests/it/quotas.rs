//! Settings of namespaces: limits on running jobs, on live jobs and on the priority class, and the minimum sandbox.

use engine::Input;
use model::namespace::{NamespaceSettings, Quota};
use model::spec::{PriorityClass, Sandbox, SandboxLevel, SandboxNetwork};
use model::why::Reason;
use model::{Bytes, JobId, JobStatus, Millicores, Refusal};

use crate::scenario::Scenario;

fn statuses<const N: usize>(t: &Scenario, jobs: [JobId; N]) -> [JobStatus; N] {
    jobs.map(|job| t.status(job))
}

/// H2, E6.
#[test]
fn a_namespace_runs_no_more_than_its_quota() {
    let gpu = |s: &mut model::JobSpec| {
        s.resources.custom = [("gpu".into(), 1)].into();
    };
    let (cpu, memory) = (Some(Millicores(250)), Some(Bytes(150 << 20)));
    let quotas = [
        Quota { cpu, ..Quota::default() },
        Quota { memory, ..Quota::default() },
        Quota { running: Some(2), ..Quota::default() },
        Quota { custom: [("gpu".into(), 2)].into(), ..Quota::default() },
    ];
    for quota in quotas {
        let mut t = Scenario::new();
        t.worker().custom("gpu", 100).join();
        t.quota("team", quota.clone());
        let jobs = [0; 3].map(|_| t.job().namespace("team").spec(gpu).submit());
        let other = t.job().spec(gpu).submit();
        assert_eq!(
            statuses(&t, jobs),
            [JobStatus::Running, JobStatus::Running, JobStatus::Waiting],
            "{quota:?}"
        );
        assert_eq!(t.status(other), JobStatus::Running, "another namespace has its own quota");
        assert!(matches!(&t.why(jobs[2])[..], [Reason::NamespaceQuota { .. }]), "{:?}", t.why(jobs[2]));
        t.succeed(jobs[0]);
        assert_eq!(t.status(jobs[2]), JobStatus::Running, "{quota:?}");
    }
}

#[test]
fn why_names_the_quota_with_its_note() {
    let mut t = Scenario::new();
    t.worker().join();
    let quota = Quota { cpu: Some(Millicores(150)), ..Quota::default() };
    t.namespace("team", NamespaceSettings { quota, note: Some("until March".into()), ..Default::default() });
    let [_, waiting] = [0; 2].map(|_| t.job().namespace("team").submit());
    insta::assert_json_snapshot!(t.why(waiting), @r#"
    [
      {
        "reason": "namespace_quota",
        "namespace": "team",
        "resource": "cpu",
        "used": 100,
        "needed": 100,
        "limit": 150,
        "note": "until March"
      }
    ]
    "#);
}

#[test]
fn a_blocked_namespace_does_not_delay_others_in_its_queue() {
    let mut t = Scenario::new();
    t.quota("team", Quota { running: Some(1), ..Quota::default() });
    let blocked = [0; 5].map(|_| t.job().namespace("team").priority(100).submit());
    let other = t.job().priority(0).submit();
    t.worker().join();
    assert_eq!(t.status(other), JobStatus::Running);
    assert_eq!(blocked.iter().filter(|&&job| t.status(job) == JobStatus::Running).count(), 1);
}

#[test]
fn a_raised_quota_starts_jobs_and_a_lowered_one_stops_none() {
    let mut t = Scenario::new();
    t.worker().join();
    t.quota("team", Quota { running: Some(1), ..Quota::default() });
    let jobs = [0; 3].map(|_| t.job().namespace("team").submit());
    t.quota("team", Quota { running: Some(2), ..Quota::default() });
    assert_eq!(statuses(&t, jobs), [JobStatus::Running, JobStatus::Running, JobStatus::Waiting]);
    t.quota("team", Quota { running: Some(1), ..Quota::default() });
    t.succeed(jobs[0]);
    assert_eq!(statuses(&t, [jobs[1], jobs[2]]), [JobStatus::Running, JobStatus::Waiting]);
    let name = "team".to_owned();
    t.ask(|ticket| Input::RemoveNamespace { ticket, name }).unwrap();
    assert_eq!(t.status(jobs[2]), JobStatus::Running, "without settings there is no limit");
}

/// A batch is accepted or refused as a whole.
#[test]
fn submissions_beyond_the_quota_of_jobs_are_refused() {
    let mut t = Scenario::new();
    t.quota("team", Quota { jobs: Some(2), ..Quota::default() });
    let first = t.job().namespace("team").submit();
    t.job().namespace("team").in_seconds(60).submit();
    let refused = t.job().namespace("team").try_submit();
    assert_eq!(refused, Err(Refusal::NamespaceJobLimit { index: 0, namespace: "team".into(), limit: 2 }));
    t.job().submit();
    t.cancel(first).unwrap();
    t.job().namespace("team").submit();
}

#[test]
fn a_repeated_submission_is_not_refused_for_the_quota() {
    let mut t = Scenario::new();
    t.quota("team", Quota { jobs: Some(1), ..Quota::default() });
    let first = t.job().namespace("team").key(7, 7).submit();
    assert_eq!(t.job().namespace("team").key(7, 7).submit(), first);
}

/// No firing is lost for a quota.
#[test]
fn schedules_create_jobs_beyond_the_quota_of_jobs() {
    let mut t = Scenario::new();
    t.quota("default", Quota { jobs: Some(1), ..Quota::default() });
    t.job().submit();
    let schedule = t.schedule("every").cron("* * * * *").apply();
    t.pass(61);
    assert_eq!(t.run_status(schedule), [JobStatus::Waiting]);
}

#[test]
fn a_namespace_can_exclude_priority_classes() {
    let mut t = Scenario::new();
    let highest = Some(PriorityClass::Normal);
    t.namespace("team", NamespaceSettings { max_priority_class: highest, ..Default::default() });
    let high = |t: &mut Scenario| t.job().namespace("team").class(PriorityClass::High).try_submit();
    let refusal = Refusal::PriorityClassNotAllowed {
        namespace: "team".into(),
        class: PriorityClass::High,
        highest: PriorityClass::Normal,
    };
    assert_eq!(high(&mut t), Err(refusal.clone()));
    let job = t.job().namespace("team").submit();
    let head = t.job().namespace("team").class(PriorityClass::High).head();
    let actor = "alice".into();
    let update = t.ask(|ticket| Input::Update { ticket, job, head, expected_version: None, actor });
    assert_eq!(update.unwrap_err(), refusal);
}

/// H2. Every way of creating a job leads to the minimum of the namespace.
#[test]
fn all_new_jobs_of_a_namespace_have_its_minimum_sandbox() {
    let mut t = Scenario::new();
    let before = t.job().submit();
    let schedule = t.schedule("every").cron("* * * * *").apply();
    let strict = Sandbox { level: SandboxLevel::Strict, network: Some(SandboxNetwork::Loopback) };
    t.namespace("default", NamespaceSettings { sandbox: strict, ..Default::default() });
    let sandbox_of = |t: &Scenario, job: JobId| t.rows.jobs[&job].0.spec.run.as_process().unwrap().sandbox;
    let submitted = t.job().submit();
    let own = Sandbox { level: SandboxLevel::Basic, network: Some(SandboxNetwork::None) };
    let stricter = t.job().spec(move |spec| spec.run.as_process_mut().unwrap().sandbox = own).submit();
    t.pass(61);
    let fired = t.runs(schedule)[0];
    assert_eq!(sandbox_of(&t, before), Sandbox::default());
    assert_eq!([submitted, fired].map(|job| sandbox_of(&t, job)), [strict; 2]);
    assert_eq!(sandbox_of(&t, stricter), Sandbox { network: Some(SandboxNetwork::None), ..strict });
    let head = t.job().head();
    let (job, actor) = (before, "alice".into());
    t.ask(|ticket| Input::Update { ticket, job, head, expected_version: None, actor }).unwrap();
    assert_eq!(sandbox_of(&t, before), strict, "an update creates the job again");
    assert_eq!(t.why(submitted).len(), 1, "it waits for a worker with the sandbox");
    t.worker().sandbox_levels(&[]).join();
    assert_eq!(t.status(submitted), JobStatus::Waiting);
    t.worker().sandbox_levels(&[SandboxLevel::Strict]).join();
    assert_eq!(t.status(submitted), JobStatus::Running);
}

/// D5.
#[test]
fn quotas_hold_after_a_restart() {
    let mut t = Scenario::new();
    t.worker().join();
    t.quota("team", Quota { running: Some(1), ..Quota::default() });
    let jobs = [0; 2].map(|_| t.job().namespace("team").submit());
    t.start(jobs[0]);
    t.restart();
    t.rejoin_all();
    assert_eq!(statuses(&t, jobs), [JobStatus::Running, JobStatus::Waiting]);
    t.succeed(jobs[0]);
    assert_eq!(t.status(jobs[1]), JobStatus::Running);
}

/// E3. No job is preempted for one that its quota does not allow.
#[test]
fn quotas_bound_preemptions() {
    let mut t = Scenario::new();
    t.worker().cpu(1_000).join();
    let low = [0; 2].map(|_| {
        let job = t.job().cpu(500).class(PriorityClass::Preemptible).submit();
        t.start(job);
        job
    });
    t.quota("team", Quota { cpu: Some(Millicores(500)), ..Quota::default() });
    for _ in 0..2 {
        t.job().cpu(500).namespace("team").class(PriorityClass::High).submit();
    }
    assert_eq!(low.iter().filter(|&&job| t.is_being_stopped(job)).count(), 1);
}

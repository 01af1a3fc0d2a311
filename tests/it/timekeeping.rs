//! Schedules during kills, outages and clock changes: every scheduled time is decided once.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use client::{JobFilter, LedgerFilter, ScheduleRef};
use futures::TryStreamExt as _;
use harness::witness::JobResult;
use harness::{MovedClock, Site, until};
use model::api::LedgerEntry;
use model::firing::{FiringCause, FiringOutcome};
use model::schedule::{MissedPolicy, OverlapPolicy};
use model::spec::Delivery;
use model::timing::{Cron, Every, Rule, Timing};
use model::{JobSpec, ScheduleId, ScheduleSpec, Timestamp};

const SOON: Duration = Duration::from_secs(60);

fn schedule(name: &str, rule: Rule, job: JobSpec) -> ScheduleSpec {
    let timing = Timing { rules: vec![rule], ..Timing::default() };
    let mut spec = ScheduleSpec::new(name, timing, job);
    spec.overlap.policy = OverlapPolicy::AllowAll;
    spec
}

async fn apply(site: &Site, spec: &ScheduleSpec) -> ScheduleId {
    site.client().put_schedule(spec, None).await.unwrap().id
}

/// Returns the ledger of a schedule, oldest entry first.
async fn ledger(site: &Site, id: ScheduleId) -> Vec<LedgerEntry> {
    let lines = site.client().ledger(ScheduleRef::from(id), LedgerFilter::default());
    let mut lines: Vec<_> = lines.try_collect().await.unwrap();
    lines.reverse();
    lines
}

/// Returns the outcomes of a ledger, each with its number of scheduled times.
fn outcomes(lines: &[LedgerEntry]) -> Vec<(FiringOutcome, u64)> {
    lines.iter().map(|line| (line.outcome, line.count)).collect()
}

/// I14: every second from the first entry to the last has one entry.
fn assert_no_second_is_missing_or_double(lines: &[LedgerEntry]) {
    let second = |at: Timestamp| at.as_millis() / 1_000;
    let mut seen: BTreeMap<i64, u32> = BTreeMap::new();
    for line in lines {
        assert!(line.decided_at >= line.last, "early: {line:?}");
        for instant in second(line.scheduled_for)..=second(line.last) {
            *seen.entry(instant).or_default() += 1;
        }
    }
    let (first, last) = (*seen.keys().next().unwrap(), *seen.keys().last().unwrap());
    assert!(seen.values().all(|&count| count == 1), "a scheduled time has two entries: {lines:#?}");
    assert_eq!(seen.len() as i64, last - first + 1, "a scheduled time has no entry: {lines:#?}");
}

/// B2, D5, I14. The server is killed repeatedly while a schedule fires every second.
#[tokio::test]
async fn kills_around_firings_lose_and_duplicate_no_firing() {
    let mut site = Site::start().await;
    let witness = site.witness();
    let every = Every { period: "1s".parse().unwrap(), phase: "0s".parse().unwrap() };
    let id = apply(&site, &schedule("beat", Rule::Every(every), witness.job_that("true"))).await;
    for round in 0..6 {
        until("another firing", SOON, async || (ledger(&site, id).await.len() > round).then_some(())).await;
        site.server.kill().await;
        site.server.restart().await;
    }
    let client = site.client();
    client.pause_schedule(&ScheduleRef::from(id), Some("enough")).await.unwrap();
    let lines = ledger(&site, id).await;
    assert_no_second_is_missing_or_double(&lines);

    let mut fates = BTreeMap::new();
    for line in lines.iter().filter(|line| line.outcome.fired()) {
        let job = line.job_id.unwrap();
        let ended = site.until_job(job, "ended", |j| j.status.is_final()).await;
        assert_eq!(ended.origin.as_ref().unwrap().scheduled_for, line.scheduled_for);
        let executions = client.job_executions(job).await.unwrap().items;
        let fate = JobResult { delivery: Delivery::AtLeastOnce, job: Some(ended), executions };
        assert!(fates.insert(job.to_string(), fate).is_none(), "two scheduled times share a job");
    }
    let filter = JobFilter { schedule: Some(id), ..JobFilter::default() };
    let jobs: Vec<_> = client.jobs(filter).try_collect().await.unwrap();
    assert_eq!(jobs.len(), fates.len(), "a job has no ledger entry");
    assert_eq!(witness.violations(&fates), [""; 0]);
}

async fn site_by(clock: &MovedClock) -> Site {
    Site::server_only(&[clock.setting()]).await
}

/// B3, D5, I18. Five hours without a server, with each policy for missed runs.
#[tokio::test]
async fn runs_missed_in_an_outage_are_caught_up_by_policy() {
    let clock = MovedClock::new();
    let mut site = site_by(&clock).await;
    let mut ids = Vec::new();
    for policy in [MissedPolicy::Skip, MissedPolicy::FireOnce, MissedPolicy::FireLast, MissedPolicy::FireAll]
    {
        // Half an hour away from now, so that the test does not depend on the boundary.
        let minutes = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 60;
        let minute = (minutes + 30) % 60;
        let rule = Rule::Cron(Cron::new(format!("{minute} * * * *")));
        let mut spec = schedule(&format!("{policy:?}"), rule, JobSpec::command(["true"]));
        spec.missed.policy = policy;
        spec.missed.last = 2;
        ids.push(apply(&site, &spec).await);
    }
    site.server.kill().await;
    clock.set(5 * 3_600);
    site.server.restart().await;
    let mut found = Vec::new();
    for &id in &ids {
        let lines = until("five scheduled times are decided", SOON, async || {
            let lines = ledger(&site, id).await;
            (lines.iter().map(|line| line.count).sum::<u64>() == 5).then_some(lines)
        })
        .await;
        found.push(outcomes(&lines));
    }
    use FiringOutcome::{Coalesced, FiredLate, SkippedPolicy};
    assert_eq!(
        found,
        [
            vec![(SkippedPolicy, 5)],
            vec![(Coalesced, 4), (FiredLate, 1)],
            vec![(SkippedPolicy, 3), (FiredLate, 1), (FiredLate, 1)],
            vec![(FiredLate, 1); 5],
        ]
    );
}

/// F10, I14, I16: rule 8 of the design. The clock leaps ahead and back while the server runs.
#[tokio::test]
async fn a_clock_change_under_a_running_server_duplicates_and_loses_no_firing() {
    let clock = MovedClock::new();
    let site = site_by(&clock).await;
    let every = Every { period: "1s".parse().unwrap(), phase: "0s".parse().unwrap() };
    let id = apply(&site, &schedule("beat", Rule::Every(every), JobSpec::command(["true"]))).await;
    let fired = async |more: usize| {
        until("more firings", SOON, async || {
            let lines = ledger(&site, id).await;
            (lines.iter().filter(|line| line.outcome.fired()).count() >= more).then_some(lines)
        })
        .await
    };
    fired(2).await;
    // Ten days ahead without confirmation by another clock: engine time ignores the leap.
    clock.set(10 * 24 * 3_600);
    let ahead = fired(4).await;
    assert!(ahead.iter().all(|line| line.cause == FiringCause::Timer), "{ahead:#?}");
    // Two hours back: engine time stands still until the wall clock has caught up.
    clock.set(-7_200);
    let newest = ahead.last().unwrap().last;
    clock.set(0);
    let lines = until("firings after the leaps", SOON, async || {
        let lines = ledger(&site, id).await;
        (lines.last()?.last.since(newest) >= "3s".parse().unwrap()).then_some(lines)
    })
    .await;
    assert_no_second_is_missing_or_double(&lines);
}

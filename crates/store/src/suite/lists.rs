//! Rules for lists and counts.
//!
//! Lists of jobs are compared with `matches`, a direct implementation of the filter, for many filters and
//! random jobs. Lists of schedules, ledger entries, workflows and runs have their rules in the modules of
//! these objects.
//!
//! # Invariants
//! - A list is sorted newest first, and its pages have no gaps and no duplicates, although jobs end between
//!   two pages.
//! - Counts by status equal the number of jobs, after every type of change.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::record::JobHead;
use model::run::{RunStatus, StepOrigin};
use model::{ExecutionStatus, JobId, JobStatus, Timestamp};

use super::{Fixture, Job, Subject, execution, new_execution};
use crate::query::{Counts, ExecutionFilter, JobFilter, Page};

const ALL: Page<JobId> = Page { after: None, limit: 1_000 };

async fn ids<S: Subject>(scene: &Fixture<S>, filter: &JobFilter) -> Vec<JobId> {
    let page = scene.store().jobs(filter, ALL).await.unwrap();
    assert!(!page.more);
    page.items.iter().map(|job| job.id).collect()
}

/// Reference implementation of the filter.
fn matches(filter: &JobFilter, job: &Job) -> bool {
    let (spec, origin) = (&job.head.spec, job.head.origin.as_ref());
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
    (filter.ids.is_empty() || filter.ids.contains(&job.id))
        && (filter.statuses.is_empty() || filter.statuses.contains(&job.state.status))
        && is(&filter.namespace, &spec.namespace)
        && is(&filter.queue, &spec.queue)
        && is(&filter.name, &spec.name)
        && filter.text.as_ref().is_none_or(|text| spec.name.contains(&text.to_ascii_lowercase()))
        && filter.owner.as_ref().is_none_or(|owner| spec.owner.as_ref() == Some(owner))
        && filter.labels.iter().all(|(key, value)| spec.labels.get(key) == Some(value))
        && filter.worker.is_none_or(|worker| job.state.worker == Some(worker))
        && filter.created_after.is_none_or(|at| job.id.created_at() >= at)
        && filter.created_before.is_none_or(|at| job.id.created_at() < at)
        && filter.schedule.is_none_or(|id| origin.is_some_and(|origin| origin.schedule == id))
        && filter.backfill.is_none_or(|id| origin.is_some_and(|origin| origin.backfill == Some(id)))
        && filter.run.is_none_or(|id| job.head.step.as_ref().is_some_and(|step| step.run == id))
        && filter.service.is_none_or(|id| job.head.replica.as_ref().is_some_and(|found| found.service == id))
}

/// Commits random live and ended jobs; returns them newest first.
async fn some_jobs<S: Subject>(scene: &mut Fixture<S>, count: usize) -> Vec<Job> {
    let mut jobs = Vec::new();
    for _ in 0..count {
        let status = scene.sampler.pick(JobStatus::ALL);
        let mut job = scene.job(JobStatus::Waiting);
        scene.commit(vec![job.change(true)]).await;
        if status != JobStatus::Waiting {
            job = job.to(status, &mut scene.sampler);
            let mut changes = vec![job.change(false)];
            // A running job has an execution; lists may rely on it.
            if status == JobStatus::Running {
                changes.push(new_execution(&scene.execution(&job, 1, ExecutionStatus::Running)));
            }
            scene.commit(changes).await;
        }
        jobs.insert(0, job);
    }
    jobs
}

/// A5.
pub async fn every_filter_of_jobs_finds_the_matching_jobs<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(11).await;
    let jobs = some_jobs(&mut scene, 150).await;
    let text = |text: &str| Some(text.to_owned());
    let worker = jobs.iter().find_map(|job| job.state.worker);
    let mut filters = vec![
        JobFilter::default(),
        JobFilter { namespace: text("team-a"), ..JobFilter::default() },
        JobFilter { namespace: text("nobody"), ..JobFilter::default() },
        JobFilter { owner: text("钟楼"), ..JobFilter::default() },
        JobFilter { queue: text("slow"), ..JobFilter::default() },
        JobFilter { queue: text("default"), namespace: text("team-b"), ..JobFilter::default() },
        JobFilter { name: text("report"), owner: text("a"), ..JobFilter::default() },
        JobFilter { text: text("EPO"), ..JobFilter::default() },
        JobFilter { text: text("epo"), namespace: text("team-b"), ..JobFilter::default() },
        JobFilter { text: text("%"), ..JobFilter::default() },
        JobFilter { worker, ..JobFilter::default() },
        JobFilter { labels: label("team", "钟楼"), ..JobFilter::default() },
        JobFilter { labels: label("team", "钟楼"), namespace: text("default"), ..JobFilter::default() },
    ];
    let origin = jobs.iter().filter_map(|job| job.head.origin.as_ref()).find(|o| o.backfill.is_some());
    let schedule = origin.map(|origin| origin.schedule);
    filters.extend([
        JobFilter { schedule, ..JobFilter::default() },
        JobFilter { schedule, labels: label("team", "钟楼"), ..JobFilter::default() },
        JobFilter { backfill: origin.and_then(|origin| origin.backfill), ..JobFilter::default() },
    ]);
    let run = jobs.iter().find_map(|job| job.head.step.as_ref()).map(|step| step.run);
    filters.extend([
        JobFilter { run, ..JobFilter::default() },
        JobFilter { run, schedule, ..JobFilter::default() },
        JobFilter { run, labels: label("team", "钟楼"), ..JobFilter::default() },
    ]);
    let service = jobs.iter().find_map(|job| job.head.replica.as_ref()).map(|replica| replica.service);
    filters.extend([
        JobFilter { service, ..JobFilter::default() },
        JobFilter { service, statuses: vec![JobStatus::Running], ..JobFilter::default() },
        JobFilter { service, statuses: vec![JobStatus::Failed], ..JobFilter::default() },
        JobFilter { service, labels: label("team", "钟楼"), ..JobFilter::default() },
    ]);
    let few: Vec<_> = jobs.iter().step_by(7).map(|job| job.id).chain([JobId::from_bits(1)]).collect();
    filters.extend([
        JobFilter { ids: vec![jobs[3].id, jobs[3].id], ..JobFilter::default() },
        JobFilter { ids: few.clone(), ..JobFilter::default() },
        JobFilter { ids: few, labels: label("team", "钟楼"), ..JobFilter::default() },
    ]);
    let mut two_labels = label("team", "a");
    two_labels.extend(label("tier", "a"));
    filters.push(JobFilter { labels: two_labels, ..JobFilter::default() });
    let base: Vec<_> = filters.clone();
    for statuses in [
        vec![JobStatus::Waiting],
        vec![JobStatus::Running],
        vec![JobStatus::Failed],
        vec![JobStatus::Failed, JobStatus::Cancelled, JobStatus::Failed],
        vec![JobStatus::Succeeded, JobStatus::Running, JobStatus::Expired],
    ] {
        filters.extend(base.iter().map(|filter| JobFilter { statuses: statuses.clone(), ..filter.clone() }));
    }
    let mut found = 0;
    for filter in filters {
        let expected: Vec<_> = jobs.iter().filter(|job| matches(&filter, job)).map(|job| job.id).collect();
        found += expected.len();
        assert_eq!(ids(&scene, &filter).await, expected, "{filter:?}");
    }
    assert!(found > 500, "the filters find too little to say much: {found}");
}

/// A5. By the name of the workflow, live and ended.
pub async fn jobs_are_found_by_the_workflow_of_their_run<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(13).await;
    let mut expected: BTreeMap<String, Vec<JobId>> = BTreeMap::new();
    for _ in 0..8 {
        let run = scene.run(RunStatus::Running);
        let name = &run.head.definition.workflow.name;
        scene.commit(run.changes()).await;
        for status in [JobStatus::Waiting, JobStatus::Failed] {
            let mut job = scene.job(status);
            let step = StepOrigin { run: run.id, ..scene.sampler.step_origin() };
            job.head = Arc::new(JobHead { step: Some(Arc::new(step)), ..JobHead::clone(&job.head) });
            scene.commit(vec![job.change(true)]).await;
            expected.entry(name.clone()).or_default().insert(0, job.id);
        }
    }
    some_jobs(&mut scene, 20).await;
    assert!(expected.len() > 1, "all runs have one name");
    let of = |workflow: &str| JobFilter { workflow: Some(workflow.to_owned()), ..JobFilter::default() };
    for (name, jobs) in &expected {
        assert_eq!(ids(&scene, &of(name)).await, *jobs, "{name}");
        let failed = JobFilter { statuses: vec![JobStatus::Failed], ..of(name) };
        assert_eq!(ids(&scene, &failed).await.len(), jobs.len() / 2, "{name}");
    }
    assert_eq!(ids(&scene, &of("report")).await, []);
}

fn label(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

/// A5. At exactly the given time, and between milliseconds.
pub async fn a_list_is_limited_by_creation_time<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(12).await;
    let jobs = some_jobs(&mut scene, 30).await;
    let middle = jobs[15].id.created_at();
    for offset in [-1_000, -1, 0, 1, 1_000] {
        let at = Some(Timestamp::from_micros(middle.as_micros() + offset));
        for filter in [
            JobFilter { created_after: at, ..JobFilter::default() },
            JobFilter { created_before: at, ..JobFilter::default() },
            JobFilter { created_after: at, created_before: at, ..JobFilter::default() },
            JobFilter { created_after: Some(middle), created_before: at, ..JobFilter::default() },
        ] {
            let expected: Vec<_> =
                jobs.iter().filter(|job| matches(&filter, job)).map(|job| job.id).collect();
            assert_eq!(ids(&scene, &filter).await, expected, "{filter:?}");
        }
    }
}

/// A5. A job that exists from the first page to the last is listed exactly once.
pub async fn pages_have_no_gaps_or_duplicates_while_jobs_end<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(13).await;
    let mut jobs = Vec::new();
    for _ in 0..100 {
        let job = scene.job(JobStatus::Waiting);
        scene.commit(vec![job.change(true)]).await;
        jobs.push(job);
    }
    let expected: Vec<_> = jobs.iter().rev().map(|job| job.id).collect();
    let mut found = Vec::new();
    let mut page = Page { after: None, limit: 7 };
    let mut to_end = jobs.clone();
    loop {
        let listed = scene.store().jobs(&JobFilter::default(), page).await.unwrap();
        found.extend(listed.items.iter().map(|job| job.id));
        assert!(listed.items.len() == 7 || !listed.more);
        page.after = found.last().copied();
        if !listed.more {
            break;
        }
        for _ in 0..5 {
            let index = scene.sampler.below(to_end.len() as u64);
            let job = to_end.swap_remove(usize::try_from(index).unwrap());
            let ended = job.to(JobStatus::Succeeded, &mut scene.sampler);
            // New jobs come before the first page.
            let new = scene.job(JobStatus::Waiting);
            scene.commit(vec![ended.change(false), new.change(true)]).await;
        }
    }
    assert_eq!(found, expected);
}

/// A5.
pub async fn lists_are_newest_first_and_have_no_histories<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(14).await;
    let jobs = some_jobs(&mut scene, 40).await;
    let listed = scene.store().jobs(&JobFilter::default(), ALL).await.unwrap();
    assert_eq!(listed.items.len(), jobs.len());
    for (job, listed) in jobs.into_iter().zip(listed.items) {
        let mut state = job.state;
        state.history.clear();
        assert_eq!(listed.id, job.id);
        assert_eq!(listed.body, job.head.body);
        assert_eq!(listed.retry_of, job.head.retry_of);
        assert_eq!(listed.origin, job.head.origin);
        assert_eq!(listed.step, job.head.step);
        assert_eq!(listed.state, state);
    }
    let one = Page { after: None, limit: 40 };
    assert!(!scene.store().jobs(&JobFilter::default(), one).await.unwrap().more, "there is nothing behind");
}

/// A5, A8.
pub async fn executions_are_found_by_job_worker_namespace_and_status<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(15).await;
    let mut all = Vec::new();
    let workers = [scene.sampler.worker_id(), scene.sampler.worker_id()];
    for _ in 0..40 {
        let job = scene.job(JobStatus::Running);
        let mut first = scene.execution(&job, 1, ExecutionStatus::Running);
        first.worker = scene.sampler.pick(&workers);
        scene.commit(vec![job.change(true), new_execution(&first)]).await;
        if scene.sampler.below(2) == 0 {
            first.status = scene.sampler.pick(&[ExecutionStatus::Lost, ExecutionStatus::Failed]);
            let mut second = scene.execution(&job, 2, ExecutionStatus::Assigned);
            second.worker = scene.sampler.pick(&workers);
            scene.commit(vec![execution(&first), new_execution(&second)]).await;
            all.insert(0, (first, job.clone()));
            all.insert(0, (second, job));
        } else {
            all.insert(0, (first, job));
        }
    }
    let of_job = Some(all[5].1.id);
    let filter = ExecutionFilter::default;
    for filter in [
        filter(),
        ExecutionFilter { job: of_job, ..filter() },
        ExecutionFilter { worker: Some(workers[0]), ..filter() },
        ExecutionFilter { worker: Some(workers[1]), statuses: vec![ExecutionStatus::Running], ..filter() },
        ExecutionFilter { namespace: Some("team-a".into()), ..filter() },
        ExecutionFilter { statuses: vec![ExecutionStatus::Lost, ExecutionStatus::Assigned], ..filter() },
        ExecutionFilter { job: of_job, worker: Some(workers[0]), ..filter() },
    ] {
        let expected: Vec<_> = all
            .iter()
            .filter(|(record, job)| {
                filter.job.is_none_or(|wanted| wanted == record.job)
                    && filter.worker.is_none_or(|wanted| wanted == record.worker)
                    && filter.namespace.as_ref().is_none_or(|wanted| *wanted == job.head.spec.namespace)
                    && (filter.statuses.is_empty() || filter.statuses.contains(&record.status))
            })
            .map(|(record, _)| record.clone())
            .collect();
        assert!(!expected.is_empty() || filter.worker.is_some(), "{filter:?} finds nothing");
        let mut found = Vec::new();
        let mut page = Page { after: None, limit: 3 };
        loop {
            let listed = scene.store().executions(&filter, page).await.unwrap();
            found.extend(listed.items.into_iter().map(|row| row.record));
            page.after = found.last().map(|record| record.id);
            if !listed.more {
                break;
            }
        }
        assert_eq!(found, expected, "{filter:?}");
    }
}

/// H1. After every type of change, after deletion and after a reopen.
pub async fn counts_follow_every_job<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(16).await;
    let mut jobs = some_jobs(&mut scene, 80).await;
    let new_and_ended = scene.job(JobStatus::Succeeded);
    scene.commit(vec![new_and_ended.change(true)]).await;
    jobs.push(new_and_ended);
    let deleted: Vec<_> =
        jobs.extract_if(.., |job| job.state.status == JobStatus::Failed).map(|job| job.id).collect();
    assert!(!deleted.is_empty());
    scene.store().delete_jobs(&deleted).await.unwrap();
    // A second call changes nothing.
    scene.store().delete_jobs(&deleted).await.unwrap();
    let scene = scene.reopen().await;
    for namespace in [None, Some("default"), Some("team-a"), Some("nobody")] {
        let mut expected = Counts::new();
        for job in jobs.iter().filter(|job| namespace.is_none_or(|n| n == job.head.spec.namespace)) {
            *expected.entry(job.state.status).or_default() += 1;
        }
        let mut found = scene.store().counts(namespace).await.unwrap();
        found.retain(|_, count| *count > 0);
        assert_eq!(found, expected, "{namespace:?}");
    }
}

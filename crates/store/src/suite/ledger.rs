//! Rules for the ledger and for backfills.
//!
//! An entry is identified by schedule, generation, first scheduled time, cause and backfill. The rules cover
//! what a commit may change in it, how lists and counts find it, and when it is trimmed. Filters are compared
//! with `matches`, a direct implementation of their documentation, on random entries.
//!
//! # Invariants
//! - An entry with a job never gets another one, and a batch that attempts it changes nothing.
//! - Entries outlive their schedule; those of waiting firings are never trimmed.

use std::slice;
use std::sync::Arc;

use model::firing::{BackfillHead, BackfillState, BackfillStatus, FiringCause, FiringOutcome, LedgerRecord};
use model::record::{Change, LiveRow};
use model::{BackfillId, Duration, JobStatus, ScheduleId, Timestamp};

use super::schedules::Schedule;
use super::{Fixture, SHARDS, Subject};
use crate::StoreError;
use crate::query::{BackfillRow, LedgerCounts, LedgerFilter, LedgerPosition, Page};

const ALL: Page<LedgerPosition> = Page { after: None, limit: 1_000 };

fn line(record: &LedgerRecord) -> Change {
    Change::Ledger(Box::new(record.clone()))
}

fn of(schedule: ScheduleId) -> LedgerFilter {
    LedgerFilter { schedule: Some(schedule), ..LedgerFilter::default() }
}

impl<S: Subject> Fixture<S> {
    async fn lines(&self, filter: &LedgerFilter) -> Vec<LedgerRecord> {
        let page = self.store().ledger(filter, ALL).await.unwrap();
        assert!(!page.more);
        page.items.into_iter().map(|(_, line)| line).collect()
    }

    /// Commits some schedules with some entries each, in the order of the lists.
    async fn some_lines(&mut self) -> (Vec<Schedule>, Vec<LedgerRecord>) {
        let schedules: Vec<_> = (0..4).map(|_| self.schedule()).collect();
        self.commit(schedules.iter().map(|schedule| schedule.change(true)).collect()).await;
        let mut lines = Vec::new();
        for n in 0..120 {
            let schedule = schedules[n % 4].id;
            let job = (n % 3 == 0).then(|| self.sampler.job_id(schedule.shard()));
            let mut record = self.sampler.line(schedule, job);
            if n % 10 == 9 {
                // At the same time as the entry before, of another schedule.
                record.first = lines.last().map_or(record.first, |line: &LedgerRecord| line.first);
            }
            self.commit(vec![line(&record)]).await;
            lines.push(record);
        }
        lines.sort_by_key(|line| std::cmp::Reverse((line.first, line.schedule)));
        (schedules, lines)
    }
}

/// B6. As inserted, and as updated.
pub async fn every_field_of_a_ledger_entry_survives<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(61).await;
    for n in 0..64 {
        let shard = scene.sampler.pick(&SHARDS);
        let schedule = scene.sampler.schedule_id(shard);
        let job = (n % 2 == 0).then(|| scene.sampler.job_id(shard));
        let first = scene.sampler.line(schedule, job);
        let again = LedgerRecord {
            generation: first.generation,
            first: first.first,
            cause: first.cause,
            backfill: first.backfill,
            ..scene.sampler.line(schedule, job)
        };
        for expected in [first, again] {
            scene.commit(vec![line(&expected)]).await;
            assert_eq!(scene.lines(&of(schedule)).await, [expected]);
        }
    }
}

/// B2, D7. The safeguard of "one scheduled time, one job": the whole batch is refused.
pub async fn a_ledger_entry_with_a_job_never_gets_another_job<S: Subject>() {
    for given in [true, false] {
        let mut scene = Fixture::<S>::seeded(62).await;
        let mut schedule = scene.schedule();
        let (job, other) = (scene.job(JobStatus::Waiting), scene.job(JobStatus::Waiting));
        let fired = scene.sampler.line(schedule.id, Some(job.id));
        scene.commit(vec![schedule.change(true), job.change(true), line(&fired)]).await;
        let before = schedule.state.clone();
        schedule.state.fired = before.fired.wrapping_add(1);
        let twice = LedgerRecord { work: given.then_some(other.id.into()), ..fired.clone() };
        let result = scene.try_commit(vec![other.change(true), schedule.change(false), line(&twice)]).await;
        assert!(matches!(result, Err(StoreError::Fatal { .. })), "a time was fired twice: {result:?}");
        let scene = scene.reopen().await;
        assert_eq!(scene.store().job(other.id).await.unwrap(), None);
        assert_eq!(scene.store().schedule(schedule.id).await.unwrap().unwrap().state, before);
        assert_eq!(scene.lines(&of(schedule.id)).await, [fired]);
    }
}

/// B4.
pub async fn a_waiting_firing_gets_its_job<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(63).await;
    let schedule = scene.schedule();
    let waits = LedgerRecord { outcome: FiringOutcome::Buffered, ..scene.sampler.line(schedule.id, None) };
    scene.commit(vec![schedule.change(true), line(&waits)]).await;
    let job = scene.sampler.job_id(schedule.id.shard());
    let fired = LedgerRecord { outcome: FiringOutcome::FiredLate, work: Some(job.into()), ..waits };
    // A second write with the same job changes nothing.
    for _ in 0..2 {
        scene.commit(vec![line(&fired)]).await;
        assert_eq!(scene.lines(&of(schedule.id)).await, slice::from_ref(&fired));
    }
}

/// Reference implementation of the filter.
fn matches(filter: &LedgerFilter, line: &LedgerRecord, schedules: &[Schedule]) -> bool {
    let namespace = schedules.iter().find(|s| s.id == line.schedule).map(|s| &s.head.spec.namespace);
    filter.schedule.is_none_or(|schedule| schedule == line.schedule)
        && filter.namespace.as_ref().is_none_or(|wanted| Some(wanted) == namespace)
        && (filter.outcomes.is_empty() || filter.outcomes.contains(&line.outcome))
        && (filter.causes.is_empty() || filter.causes.contains(&line.cause))
        && filter.backfill.is_none_or(|backfill| line.backfill == Some(backfill))
        && filter.from.is_none_or(|from| line.last >= from)
        && filter.until.is_none_or(|until| line.first < until)
}

/// B6. In pages, newest scheduled time first, each entry with a unique position.
pub async fn every_filter_of_the_ledger_finds_the_matching_entries<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(64).await;
    let (schedules, lines) = scene.some_lines().await;
    let none = LedgerFilter::default;
    let backfill = Some(BackfillId::from_bits(1 << 80));
    let (schedule, middle) = (Some(schedules[1].id), Some(lines[60].first));
    let base = [
        none(),
        LedgerFilter { schedule, ..none() },
        LedgerFilter { namespace: Some(schedules[0].head.spec.namespace.clone()), ..none() },
        LedgerFilter { backfill, ..none() },
        LedgerFilter { backfill, schedule, ..none() },
        LedgerFilter { outcomes: vec![FiringOutcome::Fired, FiringOutcome::FiredLate], ..none() },
        LedgerFilter { causes: vec![FiringCause::CatchUp], schedule, ..none() },
        LedgerFilter {
            outcomes: vec![FiringOutcome::SkippedPause],
            causes: vec![FiringCause::Timer, FiringCause::Manual],
            ..none()
        },
    ];
    let ranges = [
        (None, None),
        (middle, None),
        (None, middle),
        (middle, Some(lines[20].first)),
        (Some(Timestamp::MAX), None),
    ];
    let mut names_something = 0;
    for filter in base {
        for (from, until) in ranges {
            let filter = LedgerFilter { from, until, ..filter.clone() };
            let expected: Vec<_> =
                lines.iter().filter(|line| matches(&filter, line, &schedules)).cloned().collect();
            names_something += usize::from(!expected.is_empty());
            let (mut found, mut page) = (Vec::new(), Page { after: None, limit: 3 });
            loop {
                let listed = scene.store().ledger(&filter, page).await.unwrap();
                assert!(listed.items.len() == 3 || !listed.more);
                page.after = listed.items.last().map(|(place, _)| *place);
                found.extend(listed.items);
                if !listed.more {
                    break;
                }
            }
            assert!(found.is_sorted_by(|(a, _), (b, _)| a > b), "{filter:?}");
            let found: Vec<_> = found.into_iter().map(|(_, line)| line).collect();
            assert_eq!(found, expected, "{filter:?}");
        }
    }
    assert!(names_something > 25, "the filters find too little to say much: {names_something}");
}

/// B6. A long pause is one entry, which is found for every day of it.
pub async fn a_range_includes_entries_that_extend_into_it<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(65).await;
    let schedule = scene.schedule();
    let paused = LedgerRecord { count: 500, ..scene.sampler.line(schedule.id, None) };
    let paused = LedgerRecord { last: paused.first + Duration::from_hours(500), ..paused };
    scene.commit(vec![schedule.change(true), line(&paused)]).await;
    let from = Some(paused.first + Duration::from_hours(400));
    let until = Some(paused.first + Duration::from_hours(401));
    assert_eq!(scene.lines(&LedgerFilter { from, until, ..of(schedule.id) }).await, slice::from_ref(&paused));
    let after = Some(paused.last + Duration::from_millis(1));
    assert_eq!(scene.lines(&LedgerFilter { from: after, ..of(schedule.id) }).await, []);
    let before = Some(paused.first);
    assert_eq!(scene.lines(&LedgerFilter { until: before, ..of(schedule.id) }).await, []);
}

/// B6.
pub async fn scheduled_times_are_counted_by_outcome<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(66).await;
    let (schedules, lines) = scene.some_lines().await;
    for schedule in &schedules {
        for since in [None, Some(lines[60].first), Some(lines[0].last), Some(Timestamp::MAX)] {
            let mut expected = LedgerCounts::new();
            for line in &lines {
                if line.schedule == schedule.id && since.is_none_or(|since| line.last >= since) {
                    *expected.entry(line.outcome).or_default() += line.count;
                }
            }
            let found = scene.store().ledger_counts(schedule.id, since).await.unwrap();
            assert_eq!(found, expected, "{since:?}");
        }
    }
}

/// B6. Also entries that are written after the deletion, in the lists of the namespace.
pub async fn ledger_entries_outlive_their_schedule<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(67).await;
    let schedule = scene.schedule();
    let before = scene.sampler.line(schedule.id, None);
    scene.commit(vec![schedule.change(true), line(&before)]).await;
    scene.commit(vec![Change::RemoveSchedule(schedule.id)]).await;
    let after = scene.sampler.line(schedule.id, None);
    scene.commit(vec![line(&after)]).await;
    let namespace = Some(schedule.head.spec.namespace.clone());
    for filter in [of(schedule.id), LedgerFilter { namespace, ..LedgerFilter::default() }] {
        assert_eq!(scene.lines(&filter).await, [after.clone(), before.clone()]);
    }
}

/// G3. By the time of the decision, and never more than requested.
pub async fn old_ledger_entries_are_trimmed_unless_they_wait<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(68).await;
    let (_, mut lines) = scene.some_lines().await;
    let waits = LedgerRecord { outcome: FiringOutcome::Buffered, count: 1, work: None, ..lines[119].clone() };
    let waits = LedgerRecord { generation: 7, ..waits };
    let late = LedgerRecord {
        generation: 8,
        work: None,
        decided_at: lines[0].decided_at + Duration::from_hours(1),
        ..lines[118].clone()
    };
    scene.commit(vec![line(&waits), line(&late)]).await;
    lines.extend([waits, late]);
    let before = lines[0].first + Duration::from_secs(150);
    let goes = |line: &LedgerRecord| line.decided_at < before && line.outcome != FiringOutcome::Buffered;
    let expected: u64 = lines.iter().filter(|line| goes(line)).count() as u64;
    assert!(expected > 20 && expected < 100);
    let store = scene.store();
    assert_eq!(store.trim_ledger(before, 5).await.unwrap(), 5);
    assert_eq!(store.trim_ledger(before, 1_000).await.unwrap(), expected - 5);
    assert_eq!(store.trim_ledger(before, 1_000).await.unwrap(), 0);
    lines.retain(|line| !goes(line));
    let by_place = |line: &LedgerRecord| std::cmp::Reverse((line.first, line.schedule, line.generation));
    lines.sort_by_key(by_place);
    assert_eq!(scene.lines(&LedgerFilter::default()).await, lines);
}

struct Backfill {
    head: BackfillHead,
    state: BackfillState,
}

impl Backfill {
    fn change(&self, new: bool) -> Change {
        let head = new.then(|| Arc::new(self.head.clone()));
        Change::Backfill { id: self.head.id, head, state: self.state }
    }

    fn row(&self) -> BackfillRow {
        BackfillRow { head: self.head.clone(), state: self.state }
    }
}

impl<S: Subject> Fixture<S> {
    fn backfill(&mut self, schedule: ScheduleId, status: BackfillStatus) -> Backfill {
        Backfill { head: self.sampler.backfill_head(schedule), state: self.sampler.backfill_state(status) }
    }
}

/// B5. Every field is unchanged meanwhile.
pub async fn a_running_backfill_is_live_until_it_ends<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(69).await;
    for round in 0..32 {
        let shard = scene.sampler.pick(&SHARDS);
        let schedule = scene.sampler.schedule_id(shard);
        let mut backfill = scene.backfill(schedule, BackfillStatus::Running);
        scene.commit(vec![backfill.change(true)]).await;
        for status in [BackfillStatus::Running, BackfillStatus::Completed, BackfillStatus::Cancelled] {
            if status == BackfillStatus::Completed && round % 2 == 0 {
                continue;
            }
            backfill.state = scene.sampler.backfill_state(status);
            scene.commit(vec![backfill.change(false)]).await;
            let found = scene.store().backfill(backfill.head.id).await.unwrap();
            assert_eq!(found, Some(backfill.row()));
            let BackfillRow { head, state } = backfill.row();
            let live = (status == BackfillStatus::Running).then_some(LiveRow::Backfill { head, state });
            assert_eq!(scene.load().await.1, Vec::from_iter(live));
        }
    }
}

/// B5. Newest first, in pages.
pub async fn backfills_are_found_by_schedule_and_namespace<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(70).await;
    let schedules: Vec<_> = (0..6).map(|_| scene.schedule()).collect();
    scene.commit(schedules.iter().map(|schedule| schedule.change(true)).collect()).await;
    let mut all = Vec::new();
    for n in 0..30 {
        let schedule = schedules[n % 6].id;
        let status = if n % 4 == 0 { BackfillStatus::Completed } else { BackfillStatus::Running };
        let backfill = scene.backfill(schedule, status);
        scene.commit(vec![backfill.change(true)]).await;
        all.insert(0, (n % 6, backfill.row()));
    }
    let namespace = |n: usize| schedules[n].head.spec.namespace.as_str();
    for (schedule, wanted) in [(None, None), (Some(2), None), (None, Some(0)), (Some(1), Some(1))] {
        let of_schedule = schedule.map(|n: usize| schedules[n].id);
        let wanted = wanted.map(namespace);
        let expected: Vec<_> = all
            .iter()
            .filter(|(n, _)| schedule.is_none_or(|wanted| wanted == *n))
            .filter(|(n, _)| wanted.is_none_or(|wanted| wanted == namespace(*n)))
            .map(|(_, row)| row.clone())
            .collect();
        let (mut found, mut page) = (Vec::new(), Page { after: None, limit: 4 });
        loop {
            let listed = scene.store().backfills(of_schedule, wanted, page).await.unwrap();
            page.after = listed.items.last().map(|row| row.head.id);
            found.extend(listed.items);
            if !listed.more {
                break;
            }
        }
        assert_eq!(found, expected, "{schedule:?} {wanted:?}");
    }
}

/// G3. Running backfills stay, whatever their start time.
pub async fn old_backfills_are_trimmed<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(71).await;
    let schedule = scene.sampler.schedule_id(SHARDS[1]);
    let statuses = [BackfillStatus::Completed, BackfillStatus::Running, BackfillStatus::Cancelled];
    let old = statuses.map(|status| scene.backfill(schedule, status));
    let before = scene.sampler.now();
    let recent = scene.backfill(schedule, BackfillStatus::Completed);
    let kept = [recent.row(), old[1].row()];
    scene.commit(old.iter().chain([&recent]).map(|backfill| backfill.change(true)).collect()).await;
    let store = scene.store();
    assert_eq!(store.trim_ledger(before, 1).await.unwrap(), 1);
    assert_eq!(store.trim_ledger(before, 10).await.unwrap(), 1);
    assert_eq!(store.trim_ledger(before, 10).await.unwrap(), 0);
    let page = Page { after: None, limit: 10 };
    assert_eq!(store.backfills(None, None, page).await.unwrap().items, kept);
    assert_eq!(store.backfill(old[0].head.id).await.unwrap(), None);
}

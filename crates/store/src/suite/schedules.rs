//! Rules for schedules and calendars.
//!
//! `Schedule` is a schedule as the rules write it. Filters are compared with `matches`, a direct
//! implementation of their documentation, on random schedules. The ledger and backfills have rules of their
//! own in `ledger`.
//!
//! # Invariants
//! - A load sends a row after the rows that it depends on: calendars, schedules, backfills.
//! - A name is used once in its namespace, and is free once its schedule is removed, also in the same batch.
//! - A schedule that does not exist cannot be changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::firing::{BackfillStatus, FiringOutcome, ScheduleHead, ScheduleState, ScheduleStatus};
use model::record::{Change, LiveRow};
use model::{JobStatus, ScheduleId, ScheduleSpec, ShardId, Timestamp};

use super::sample::schedule_head_of;
use super::{Fixture, SHARDS, Subject, load};
use crate::StoreError;
use crate::query::{LedgerFilter, Page, ScheduleCounts, ScheduleFilter};

const ALL: Page<ScheduleId> = Page { after: None, limit: 1_000 };

/// Schedule as the rules write it.
#[derive(Clone)]
pub(super) struct Schedule {
    pub(super) id: ScheduleId,
    pub(super) head: Arc<ScheduleHead>,
    pub(super) state: ScheduleState,
}

impl Schedule {
    pub(super) fn change(&self, new: bool) -> Change {
        let head = new.then(|| Arc::clone(&self.head));
        Change::Schedule { id: self.id, new, head, state: Box::new(self.state.clone()) }
    }

    fn row(&self) -> LiveRow {
        LiveRow::Schedule { id: self.id, head: (*self.head).clone(), state: Box::new(self.state.clone()) }
    }
}

impl<S: Subject> Fixture<S> {
    /// Creates a random schedule without committing it.
    pub(super) fn schedule(&mut self) -> Schedule {
        self.schedule_of(|_| {})
    }

    pub(super) fn schedule_of(&mut self, edit: impl FnOnce(&mut ScheduleSpec)) -> Schedule {
        let mut spec = self.sampler.schedule_spec();
        edit(&mut spec);
        let shard = self.sampler.pick(&SHARDS);
        let (id, status) = (self.sampler.schedule_id(shard), self.sampler.schedule_status());
        let state = self.sampler.schedule_state(id, status);
        Schedule { id, head: Arc::new(schedule_head_of(spec)), state }
    }

    async fn assert_kept(&self, expected: &Schedule) {
        let spec = &expected.head.spec;
        let by_id = self.store().schedule(expected.id).await.unwrap().expect("it was committed");
        assert_eq!(by_id.id, expected.id);
        assert_eq!(by_id.body, expected.head.body);
        assert_eq!(by_id.state, expected.state);
        let by_name = self.store().schedule_named(&spec.namespace, &spec.name).await.unwrap();
        assert_eq!(by_name, Some(by_id));
    }
}

/// B6. As created, and after firings.
pub async fn every_field_of_a_schedule_survives<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(41).await;
    for _ in 0..64 {
        let mut schedule = scene.schedule();
        scene.commit(vec![schedule.change(true)]).await;
        scene.assert_kept(&schedule).await;
        let status = scene.sampler.schedule_status();
        schedule.state = scene.sampler.schedule_state(schedule.id, status);
        scene.commit(vec![schedule.change(false)]).await;
        scene.assert_kept(&schedule).await;
    }
    let nobody = scene.sampler.schedule_id(SHARDS[0]);
    assert_eq!(scene.store().schedule(nobody).await.unwrap(), None);
    assert_eq!(scene.store().schedule_named("default", "nobody").await.unwrap(), None);
}

/// B5. Also in lists.
pub async fn a_schedule_with_a_new_generation_has_its_new_head<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(42).await;
    let label = |value: &str| BTreeMap::from([("team".to_owned(), value.to_owned())]);
    let mut schedule = scene.schedule_of(|spec| spec.labels = label("old"));
    scene.commit(vec![schedule.change(true)]).await;
    let mut spec = (*schedule.head.spec).clone();
    (spec.owner, spec.labels, spec.max_firings) = (Some("new".into()), label("new"), Some(3));
    schedule.head = Arc::new(schedule_head_of(spec));
    let (head, state) = (Some(Arc::clone(&schedule.head)), Box::new(schedule.state.clone()));
    scene.commit(vec![Change::Schedule { id: schedule.id, new: false, head, state }]).await;
    scene.assert_kept(&schedule).await;
    assert_eq!(scene.load().await.1, [schedule.row()]);
    for (filter, expected) in [
        (ScheduleFilter { owner: Some("new".into()), ..ScheduleFilter::default() }, 1),
        (ScheduleFilter { labels: label("new"), ..ScheduleFilter::default() }, 1),
        (ScheduleFilter { labels: label("old"), ..ScheduleFilter::default() }, 0),
    ] {
        let found = scene.store().schedules(&filter, ALL).await.unwrap();
        assert_eq!(found.items.len(), expected, "{filter:?}");
    }
}

/// Returns the rank of a row; a row comes after the rows that it depends on.
fn rank(row: &LiveRow) -> u8 {
    match row {
        LiveRow::Calendar(_) => 0,
        LiveRow::Schedule { .. } => 1,
        LiveRow::Backfill { .. } => 2,
        LiveRow::Job { .. } => 3,
        _ => 4,
    }
}

/// D5, G5. Only rows of the leased shards; calendars belong to no shard.
pub async fn a_load_sends_rows_after_their_dependencies<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(43).await;
    let wanted = ShardId(2);
    let calendar = scene.sampler.calendar("default", "holidays");
    scene.commit(vec![Change::Calendar(Arc::new(calendar.clone()))]).await;
    let mut expected = vec![LiveRow::Calendar(calendar)];
    for _ in 0..40 {
        let (schedule, job) = (scene.schedule(), scene.job(JobStatus::Waiting));
        let (head, state) =
            (scene.sampler.backfill_head(schedule.id), scene.sampler.backfill_state(BackfillStatus::Running));
        let backfill = Change::Backfill { id: head.id, head: Some(Arc::new(head.clone())), state };
        scene.commit(vec![backfill, job.change(true), schedule.change(true)]).await;
        expected.extend((schedule.id.shard() == wanted).then(|| schedule.row()));
        expected.extend((schedule.id.shard() == wanted).then_some(LiveRow::Backfill { head, state }));
        expected.extend((job.id.shard() == wanted).then(|| job.row()));
    }
    let leases: Vec<_> = scene.leases.iter().copied().filter(|lease| lease.shard == wanted).collect();
    let (loaded, rows) = load(scene.store(), &leases).await.unwrap();
    assert_eq!((loaded.rows, loaded.quarantined), (expected.len() as u64, 0));
    assert!(rows.is_sorted_by_key(rank), "{:?}", rows.iter().map(rank).collect::<Vec<_>>());
    let texts = |rows: Vec<LiveRow>| {
        let mut texts: Vec<_> = rows.iter().map(|row| format!("{row:?}")).collect();
        texts.sort();
        texts
    };
    assert!(expected.len() > 10, "shard {wanted} has too few rows to say much");
    assert_eq!(texts(rows), texts(expected));
}

/// Reference implementation of the filter.
fn matches(filter: &ScheduleFilter, schedule: &Schedule) -> bool {
    let (spec, state) = (&schedule.head.spec, &schedule.state);
    let text = |text: &String| spec.name.to_lowercase().contains(&text.to_lowercase());
    filter.namespace.as_ref().is_none_or(|namespace| *namespace == spec.namespace)
        && filter.owner.as_ref().is_none_or(|owner| spec.owner.as_ref() == Some(owner))
        && filter.status.is_none_or(|status| status == state.status)
        && filter.labels.iter().all(|(key, value)| spec.labels.get(key) == Some(value))
        && filter.text.as_ref().is_none_or(text)
        && filter.due_before.is_none_or(|at| state.next_at.is_some_and(|next| next < at))
}

/// Commits random schedules, some of them changed; returns them newest first.
async fn some_schedules<S: Subject>(scene: &mut Fixture<S>, count: usize) -> Vec<Schedule> {
    let mut schedules = Vec::new();
    for n in 0..count {
        let mut schedule = scene.schedule();
        scene.commit(vec![schedule.change(true)]).await;
        if n % 3 == 0 {
            let status = scene.sampler.schedule_status();
            schedule.state = scene.sampler.schedule_state(schedule.id, status);
            scene.commit(vec![schedule.change(false)]).await;
        }
        schedules.insert(0, schedule);
    }
    schedules
}

fn some_filters(schedules: &[Schedule]) -> Vec<ScheduleFilter> {
    let text = |text: &str| Some(text.to_owned());
    let none = ScheduleFilter::default;
    let label = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let mut two_labels = label("team", "a");
    two_labels.extend(label("tier", "a"));
    let due_before = schedules[schedules.len() / 2].state.next_at.or(Some(Timestamp::MAX));
    let base = vec![
        none(),
        ScheduleFilter { namespace: text("team-a"), ..none() },
        ScheduleFilter { namespace: text("nobody"), ..none() },
        ScheduleFilter { owner: text("钟楼"), ..none() },
        ScheduleFilter { owner: text("a"), namespace: text("team-b"), ..none() },
        ScheduleFilter { text: text("NIGHT"), ..none() },
        ScheduleFilter { text: text("y-1"), namespace: text("default"), ..none() },
        ScheduleFilter { text: text("%"), ..none() },
        ScheduleFilter { labels: label("team", "钟楼"), ..none() },
        ScheduleFilter { labels: label("tier", ""), text: text("hour"), ..none() },
        ScheduleFilter { labels: two_labels, ..none() },
        ScheduleFilter { due_before, ..none() },
    ];
    let statuses = [ScheduleStatus::Active, ScheduleStatus::Paused, ScheduleStatus::Completed];
    let with =
        |status| move |filter: &ScheduleFilter| ScheduleFilter { status: Some(status), ..filter.clone() };
    let mut filters = base.clone();
    for status in statuses {
        filters.extend(base.iter().map(with(status)));
    }
    filters
}

/// B6. In pages, newest first.
pub async fn every_filter_of_schedules_finds_the_matching_schedules<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(44).await;
    let schedules = some_schedules(&mut scene, 120).await;
    let mut names_something = 0;
    for filter in some_filters(&schedules) {
        let expected: Vec<_> =
            schedules.iter().filter(|schedule| matches(&filter, schedule)).map(|found| found.id).collect();
        names_something += usize::from(!expected.is_empty());
        let (mut found, mut page) = (Vec::new(), Page { after: None, limit: 7 });
        loop {
            let listed = scene.store().schedules(&filter, page).await.unwrap();
            assert!(listed.items.len() == 7 || !listed.more);
            found.extend(listed.items.iter().map(|schedule| schedule.id));
            page.after = found.last().copied();
            if !listed.more {
                break;
            }
        }
        assert_eq!(found, expected, "{filter:?}");
    }
    assert!(names_something > 25, "the filters find too little to say much: {names_something}");
}

/// B2, B6. Two schedules may have the same next scheduled time.
pub async fn upcoming_schedules_are_sorted_by_next_scheduled_time<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(45).await;
    let mut schedules = some_schedules(&mut scene, 60).await;
    let shared = schedules[0].state.next_at.or(Some(scene.sampler.now()));
    for schedule in schedules.iter_mut().take(9) {
        schedule.state.next_at = shared;
        scene.commit(vec![schedule.change(false)]).await;
    }
    for filter in some_filters(&schedules) {
        let mut expected: Vec<_> = schedules
            .iter()
            .filter(|schedule| matches(&filter, schedule))
            .filter_map(|schedule| schedule.state.next_at.map(|at| (at, schedule.id)))
            .collect();
        expected.sort();
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let listed = scene.store().upcoming(&filter, after, 4).await.unwrap();
            assert!(listed.len() <= 4);
            let Some(last) = listed.last() else { break };
            after = last.state.next_at.map(|at| (at, last.id));
            found.extend(listed.iter().map(|row| (row.state.next_at.unwrap(), row.id)));
        }
        assert_eq!(found, expected, "{filter:?}");
    }
}

/// B6. After every type of change.
pub async fn schedule_counts_follow_every_change<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(46).await;
    assert_eq!(scene.store().schedule_counts(None).await.unwrap(), ScheduleCounts::new());
    let mut schedules = some_schedules(&mut scene, 60).await;
    let removed: Vec<_> = schedules.drain(..7).map(|schedule| schedule.id).collect();
    scene.commit(removed.into_iter().map(Change::RemoveSchedule).collect()).await;
    for namespace in [None, Some("default"), Some("team-a"), Some("nobody")] {
        let mut expected = ScheduleCounts::new();
        for schedule in schedules.iter().filter(|s| namespace.is_none_or(|n| n == s.head.spec.namespace)) {
            *expected.entry(schedule.state.status).or_default() += 1;
        }
        assert_eq!(scene.store().schedule_counts(namespace).await.unwrap(), expected, "{namespace:?}");
    }
}

/// B5. In the same batch, and together with the last ledger entry of the old schedule.
pub async fn a_name_is_free_once_its_schedule_is_removed<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(47).await;
    let old = scene.schedule_of(|spec| spec.labels = BTreeMap::from([("a".into(), "b".into())]));
    scene.commit(vec![old.change(true)]).await;
    let mut new = scene.schedule();
    let mut spec = (*new.head.spec).clone();
    spec.name.clone_from(&old.head.spec.name);
    spec.namespace.clone_from(&old.head.spec.namespace);
    new.head = Arc::new(schedule_head_of(spec));
    let mut line = scene.sampler.line(old.id, None);
    line.outcome = FiringOutcome::SkippedReplaced;
    let line_of_old = Change::Ledger(Box::new(line.clone()));
    scene.commit(vec![new.change(true), line_of_old, Change::RemoveSchedule(old.id)]).await;
    assert_eq!(scene.store().schedule(old.id).await.unwrap(), None);
    scene.assert_kept(&new).await;
    assert_eq!(scene.load().await.1, [new.row()]);
    let labels = BTreeMap::from([("a".into(), "b".into())]);
    let by_label = ScheduleFilter { labels, ..ScheduleFilter::default() };
    assert_eq!(scene.store().schedules(&by_label, ALL).await.unwrap().items, []);
    let namespace = Some(old.head.spec.namespace.clone());
    let filter = LedgerFilter { namespace, ..LedgerFilter::default() };
    let found = scene.store().ledger(&filter, Page { after: None, limit: 9 }).await.unwrap();
    assert_eq!(found.items.into_iter().map(|(_, line)| line).collect::<Vec<_>>(), [line]);
    // A second removal changes nothing.
    scene.commit(vec![Change::RemoveSchedule(old.id)]).await;
}

/// B2. A safeguard: two schedules with one name would fire twice.
pub async fn a_name_is_used_once_in_its_namespace<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(48).await;
    let name = |namespace: &'static str| {
        move |spec: &mut ScheduleSpec| (spec.name, spec.namespace) = ("one".into(), namespace.into())
    };
    let (first, elsewhere) = (scene.schedule_of(name("a")), scene.schedule_of(name("b")));
    scene.commit(vec![first.change(true), elsewhere.change(true)]).await;
    let second = scene.schedule_of(name("a"));
    let result = scene.try_commit(vec![second.change(true)]).await;
    assert!(matches!(result, Err(StoreError::Fatal { .. })), "{result:?}");
}

/// G5.
pub async fn a_schedule_of_a_shard_without_a_lease_is_refused<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(49).await;
    let schedule = scene.schedule();
    let head = scene.sampler.backfill_head(schedule.id);
    let state = scene.sampler.backfill_state(BackfillStatus::Running);
    let shard = schedule.id.shard();
    let leases: Vec<_> = scene.leases.iter().copied().filter(|lease| lease.shard != shard).collect();
    for change in [
        schedule.change(true),
        Change::Ledger(Box::new(scene.sampler.line(schedule.id, None))),
        Change::Backfill { id: head.id, head: Some(Arc::new(head.clone())), state },
        Change::RemoveSchedule(schedule.id),
    ] {
        let batch = scene.batch(vec![change], Vec::new());
        let result = scene.store().commit(&leases, batch).await;
        assert!(matches!(result, Err(StoreError::Fenced { shard: found }) if found == shard), "{result:?}");
    }
    assert_eq!(scene.store().schedule(schedule.id).await.unwrap(), None);
}

/// B2. An engine that changes a missing schedule no longer has the record of what has fired.
pub async fn a_missing_schedule_cannot_be_changed<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(50).await;
    let schedule = scene.schedule();
    let result = scene.try_commit(vec![schedule.change(false)]).await;
    assert!(matches!(result, Err(StoreError::Fatal { .. })), "{result:?}");
}

/// B5.
pub async fn calendars_are_kept_until_they_are_removed<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(51).await;
    let names = [("b", "x"), ("a", "y"), ("a", "x"), ("b", "y"), ("ab", "")];
    let mut calendars: Vec<_> = names.map(|(of, name)| scene.sampler.calendar(of, name)).to_vec();
    scene.commit(calendars.iter().cloned().map(|c| Change::Calendar(Arc::new(c))).collect()).await;
    calendars[0] = scene.sampler.calendar("b", "x");
    let removed = Change::RemoveCalendar { namespace: "a".into(), name: "y".into() };
    scene.commit(vec![Change::Calendar(Arc::new(calendars[0].clone())), removed]).await;
    calendars.remove(1);
    calendars.sort_by(|a, b| (&a.spec.namespace, &a.spec.name).cmp(&(&b.spec.namespace, &b.spec.name)));
    let scene = scene.reopen().await;
    let store = scene.store();
    assert_eq!(store.calendars(None).await.unwrap(), calendars);
    assert_eq!(store.calendars(Some("b")).await.unwrap(), calendars[2..]);
    assert_eq!(store.calendars(Some("nobody")).await.unwrap(), []);
    assert_eq!(store.calendar("b", "x").await.unwrap().as_ref(), calendars.get(2));
    assert_eq!(store.calendar("a", "y").await.unwrap(), None);
    let rows: Vec<_> = calendars.into_iter().map(LiveRow::Calendar).collect();
    assert_eq!(scene.load().await.1, rows);
}

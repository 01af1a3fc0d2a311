//! All changelog rules for this store, and the obstacles to following it.

use model::changelog::{ChangelogPage, ChangelogPosition, LiveChange, LiveKey, ReloadedRows};
use model::record::LiveRow;

use super::*;
use crate::changelog::Changelog;
use crate::changelog_suite;
use crate::suite::changelog::preload;
use crate::{Commits as _, Housekeeping as _, Leases as _};

changelog_suite!(InDatabase);

#[test]
fn no_rule_of_the_suite_is_left_out() {
    let source = include_str!("../../suite/changelog.rs").lines();
    let rules = source.filter_map(|line| line.strip_prefix("pub async fn ")?.split_once('<'));
    for (rule, _) in rules {
        assert!(RULES.contains(&rule), "`{rule}` is not in `changelog_suite!`");
    }
}

impl InDatabase {
    async fn end(&self) -> ChangelogPosition {
        self.store.end().await.unwrap()
    }

    async fn since(&self, place: ChangelogPosition) -> Option<ChangelogPage> {
        self.store.since(place).await.unwrap()
    }

    /// Commits a new job, with this number of events.
    async fn commit(&self, leases: &[Lease], sampler: &mut Sampler, events: usize) -> JobId {
        let (id, batch) = batch(sampler, SHARDS[1], events);
        self.store.commit(leases, batch).await.unwrap();
        id
    }
}

/// G6. Its events show it, even after later commits.
#[tokio::test]
async fn a_commit_with_events_by_an_older_version_is_detected() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(51);
    subject.commit(&leases, &mut sampler, 1).await;
    let before = subject.end().await;
    assert!(subject.since(before).await.is_some());
    subject.database.execute("UPDATE meta SET next_event = next_event + 1");
    assert_eq!(subject.since(before).await, None);
    subject.commit(&leases, &mut sampler, 2).await;
    assert_eq!(subject.since(before).await, None);
    assert!(subject.since(subject.end().await).await.is_some());
}

/// G6. The engine time of its shard shows it, until a server of this version acquires the shard. A standby that had
/// followed until then starts again, even if that server commits before the standby's next read.
#[tokio::test]
async fn a_commit_without_events_by_an_older_version_is_detected() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(52);
    subject.commit(&leases, &mut sampler, 1).await;
    let before = subject.end().await;
    subject.database.execute("UPDATE shards SET now = now + 1 WHERE shard = 2");
    assert_eq!(subject.since(before).await, None);
    subject.commit(&leases, &mut sampler, 1).await;
    assert_eq!(subject.since(subject.end().await).await, None, "that was of another shard");
    subject.store.release(&leases).await.unwrap();
    let leases = subject.acquire().await;
    assert_eq!(subject.since(before).await, None);
    let anew = subject.end().await;
    assert_eq!(subject.since(anew).await.unwrap().touched, []);
    let job = subject.commit(&leases, &mut sampler, 1).await;
    assert_eq!(subject.since(before).await, None);
    assert_eq!(subject.since(anew).await.unwrap().touched, [LiveChange::Rows(LiveKey::Job(job))]);
}

/// D8. A standby may have read rows of lost commits, even if its position still exists.
#[tokio::test]
async fn a_standby_does_not_follow_into_another_history() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(53);
    subject.commit(&leases, &mut sampler, 1).await;
    let before = subject.end().await;
    subject.store.release(&leases).await.unwrap();
    subject.database.execute("UPDATE shards SET timeline = '0000FFFF'");
    let leases = subject.acquire().await;
    assert_eq!(subject.store.shards_with_lost_commits(&leases).await.unwrap(), SHARDS);
    let anew = subject.end().await;
    assert_eq!(anew.epoch, leases[0].epoch);
    assert!(subject.since(anew).await.is_some());
    subject.commit(&leases, &mut sampler, 1).await;
    assert_eq!(subject.since(before).await, None);
    assert_eq!(subject.since(anew).await.unwrap().touched.len(), 1);
}

/// F9.
#[tokio::test]
async fn a_damaged_row_is_not_followed() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(54);
    let before = subject.end().await;
    subject.commit(&leases, &mut sampler, 1).await;
    assert!(subject.since(before).await.is_some());
    subject.database.execute(
        "UPDATE changelog SET touched = set_byte(touched, 3, 255 - get_byte(touched, 3))
        WHERE length(touched) > 0",
    );
    assert_eq!(subject.since(before).await, None);
    subject.commit(&leases, &mut sampler, 1).await;
    assert!(subject.since(subject.end().await).await.is_some());
}

/// G5. A limited number of commits at a time, whatever the distance.
#[tokio::test]
async fn many_commits_are_followed_in_several_reads() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let begin = subject.end().await;
    subject.database.execute("WITH counted AS (UPDATE meta SET commits = commits + 599 RETURNING next_event)
        INSERT INTO changelog SELECT n, 1, 0, next_event, next_event, '' FROM counted, generate_series(1, 599) n");
    let job = subject.commit(&leases, &mut Sampler::new(55), 1).await;
    let mut place = begin;
    for (commit, whole) in [(256, false), (512, false), (600, true)] {
        let since = subject.since(place).await.unwrap();
        assert_eq!((since.end.commit, since.whole), (commit, whole));
        assert_eq!(since.touched.is_empty(), !whole);
        place = since.end;
    }
    // A row in between is missing, near or far.
    for gone in [150, 400, 599] {
        subject.database.execute(&format!("DELETE FROM changelog WHERE number = {gone}"));
        let mut place = Some(begin);
        while let Some(from) = place {
            let since = subject.since(from).await;
            assert!(!since.as_ref().is_some_and(|since| since.whole), "the gap was not noticed");
            place = since.map(|since| since.end);
        }
        subject.database.execute(&format!(
            "INSERT INTO changelog SELECT {gone}, 1, 0, next_event, next_event, '' FROM changelog WHERE number = 1"
        ));
    }
    // The newest row is missing.
    subject.database.execute("DELETE FROM changelog WHERE number = 600");
    assert_eq!(subject.since(ChangelogPosition { commit: 512, ..begin_of(&leases) }).await, None);
    assert_eq!(subject.store.live_rows(&[LiveKey::Job(job)]).await.unwrap().rows.len(), 1);
}

/// Returns the position before the first commit, with an epoch of these leases.
fn begin_of(leases: &[Lease]) -> ChangelogPosition {
    ChangelogPosition { commit: 0, epoch: leases[0].epoch }
}

/// F9. Only the owner quarantines it, during a load.
#[tokio::test]
async fn a_preload_counts_a_damaged_live_row_and_does_not_move_it() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(56);
    let bad = subject.commit(&leases, &mut sampler, 0).await;
    let good = subject.commit(&leases, &mut sampler, 0).await;
    damage::damage(&subject.database, "jobs", bad);
    let (loaded, rows) = preload(&subject.store).await.unwrap();
    assert_eq!((loaded.rows, loaded.quarantined), (2, 1));
    assert!(matches!(rows[..], [LiveRow::Job { id, .. }] if id == good), "{rows:?}");
    assert_eq!(subject.store.quarantined(9).await.unwrap(), []);
    let reread = subject.store.live_rows(&[LiveKey::Job(good), LiveKey::Job(bad)]).await.unwrap();
    assert_eq!(reread, ReloadedRows { rows, unreadable: 1 });
    assert_eq!(subject.store.quarantined(9).await.unwrap(), []);
}

/// F9. Otherwise its job would look as if it did not run.
#[tokio::test]
async fn an_execution_that_cannot_be_read_is_counted() {
    let subject = InDatabase::make().await;
    let leases = subject.acquire().await;
    let mut sampler = Sampler::new(57);
    let job = subject.commit(&leases, &mut sampler, 0).await;
    let record = Box::new(sampler.execution(job, 1, model::ExecutionStatus::Running));
    let changes = vec![Change::Execution { new: true, record }];
    let batch = Batch { now: sampler.now(), changes, ..Batch::default() };
    subject.store.commit(&leases, Arc::new(batch)).await.unwrap();
    assert_eq!(subject.store.live_rows(&[LiveKey::Job(job)]).await.unwrap().rows.len(), 2);
    subject.database.execute("UPDATE executions SET rest = 'xx'");
    let reread = subject.store.live_rows(&[LiveKey::Job(job)]).await.unwrap();
    assert_eq!((reread.rows.len(), reread.unreadable), (1, 1));
}

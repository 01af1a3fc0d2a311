//! Random changes of a log, with the power cut after each operation of the disk.

use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::disk::sim::Luck;
use crate::log::open_session;
use crate::log::thread::{Done, Request, Session};

/// A change that a Raft node may make.
#[derive(Debug, Clone)]
enum Step {
    /// Appends that are served together; the numbers of their entries.
    Append(Vec<u64>),
    /// Another leader removes a part of what is not committed.
    Truncate(u8),
    /// Commits a part of what is not committed.
    Commit(u8),
    /// Removes a part of what is committed.
    Purge(u8),
    /// Installs a snapshot beyond the end.
    Snapshot(u64),
    Vote,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => prop::collection::vec(1..12_u64, 1..4).prop_map(Step::Append),
        2 => any::<u8>().prop_map(Step::Truncate),
        3 => any::<u8>().prop_map(Step::Commit),
        2 => any::<u8>().prop_map(Step::Purge),
        1 => (0..30_u64).prop_map(Step::Snapshot),
        1 => Just(Step::Vote),
    ];
    prop::collection::vec(step, 1..14)
}

/// What has been acknowledged, and what the change under way may add or remove.
#[derive(Debug, Clone, Default)]
struct Model {
    term: u64,
    /// All entries since the start or the last snapshot, also purged ones.
    entries: Vec<Record>,
    /// Appended, not acknowledged.
    unacknowledged: Vec<Record>,
    /// Index from which a truncation is under way.
    truncating: Option<u64>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    purging: Option<LogId>,
    vote: Option<Vote>,
    voting: Option<Vote>,
}

impl Model {
    fn next(&self) -> u64 {
        let last = self.unacknowledged.last().or(self.entries.last()).map(|record| record.id);
        last.max(self.purged).map_or(0, |id| id.index + 1)
    }

    /// Returns an index between the first one that may be removed and the end.
    fn pick(first: u64, end: u64, part: u8) -> Option<u64> {
        (first < end).then(|| first + u64::from(part) * (end - first) / 256)
    }

    /// Verifies a log after a crash.
    fn verify(&self, log: &View) -> Result<(), TestCaseError> {
        prop_assert!(log.vote == self.vote || log.vote == self.voting, "{:?}: {self:?}", log.vote);
        prop_assert!(log.purged == self.purged || log.purged == self.purging, "{:?}: {self:?}", log.purged);
        let purged = log.purged.map_or(0, |id| id.index + 1);
        let (last, snapshot) = (self.entries.last().map(|record| record.id), self.purging);
        let must = self.entries.iter().filter(|record| {
            let index = record.id.index;
            let is_replaced = log.purged == snapshot && last < snapshot;
            index >= purged && self.truncating.is_none_or(|from| index < from) && !is_replaced
        });
        let must: Vec<_> = must.cloned().collect();
        let may: Vec<_> = self.entries.iter().chain(&self.unacknowledged).cloned().collect();
        let may: Vec<_> = may.into_iter().filter(|record| record.id.index >= purged).collect();
        prop_assert!(log.records.starts_with(&must), "lost: {:?} of {must:?}", log.records);
        prop_assert!(may.starts_with(&log.records), "invented: {:?} of {may:?}", log.records);
        Ok(())
    }
}

/// A log after it was opened.
#[derive(Debug, PartialEq)]
struct View {
    vote: Option<Vote>,
    purged: Option<LogId>,
    records: Vec<Record>,
}

struct Subject {
    session: Session,
    view: View,
}

fn open_subject(disk: &Arc<SimDisk>) -> Subject {
    let (session, shared) = open_session(Arc::clone(disk) as _, options()).unwrap();
    let records = shared.read(&(0..u64::MAX), usize::MAX).unwrap();
    let (vote, purged) = {
        let view = shared.view();
        (view.vote, view.purged)
    };
    Subject { session, view: View { vote, purged, records } }
}

impl Subject {
    /// Serves requests; returns how many were acknowledged, and whether the log has stopped.
    fn serve(&mut self, requests: Vec<impl FnOnce(Done) -> Request>) -> (usize, bool) {
        let results = Arc::new(Mutex::new(Vec::new()));
        let requests: Vec<_> = requests
            .into_iter()
            .map(|request| {
                let results = Arc::clone(&results);
                request(Box::new(move |result| results.lock().unwrap().push(result.is_ok())))
            })
            .collect();
        let count = requests.len();
        self.session.serve(requests.into_iter());
        self.session.prepare();
        let results = results.lock().unwrap();
        assert_eq!(results.len(), count);
        let acknowledged = results.iter().take_while(|is_ok| **is_ok).count();
        (acknowledged, acknowledged < count)
    }

    /// Takes a step; returns whether the log has stopped.
    fn take(&mut self, step: &Step, model: &mut Model) -> bool {
        let uncommitted = model.committed.max(model.purged).map_or(0, |id| id.index + 1);
        match step {
            Step::Append(counts) => {
                let mut groups = Vec::new();
                for count in counts {
                    let next = model.next();
                    let group = records(model.term, next..next + count);
                    model.unacknowledged.extend(group.clone());
                    groups.push(group);
                }
                let lengths: Vec<_> = groups.iter().map(Vec::len).collect();
                let requests = groups.into_iter().map(|group| move |done| Request::Append(group, done));
                let (acknowledged, stopped) = self.serve(requests.collect());
                let durable: usize = lengths.iter().take(acknowledged).sum();
                model.entries.extend(model.unacknowledged.drain(..durable));
                stopped
            }
            Step::Truncate(part) => {
                let Some(from) = Model::pick(uncommitted, model.next(), *part) else { return false };
                model.truncating = Some(from);
                let (_, stopped) = self.serve(vec![move |done| Request::Truncate(from, done)]);
                if !stopped {
                    model.truncating = None;
                    model.entries.retain(|record| record.id.index < from);
                    model.term += 1;
                }
                stopped
            }
            Step::Commit(part) => {
                let Some(index) = Model::pick(uncommitted, model.next(), *part) else { return false };
                model.committed = model.entries.iter().map(|record| record.id).find(|id| id.index == index);
                self.session.serve(std::iter::once(Request::SaveCommitted(model.committed)));
                // An error shows with the next step.
                false
            }
            Step::Purge(part) => {
                let first = model.purged.map_or(0, |id| id.index + 1);
                let committed = model.committed.map_or(0, |id| id.index + 1);
                let Some(index) = Model::pick(first, committed, *part) else { return false };
                let upto = model.entries.iter().map(|record| record.id).find(|id| id.index == index);
                self.purge(upto.unwrap(), model)
            }
            Step::Snapshot(beyond) => {
                model.term += 1;
                let stopped = self.purge(id(model.term, model.next() + beyond), model);
                if !stopped {
                    model.entries.clear();
                }
                stopped
            }
            Step::Vote => {
                model.term += 1;
                let vote = Vote::new(model.term, NodeId(2));
                model.voting = Some(vote);
                let (_, stopped) = self.serve(vec![move |done| Request::SaveVote(vote, done)]);
                if !stopped {
                    model.vote = Some(vote);
                }
                stopped
            }
        }
    }

    fn purge(&mut self, upto: LogId, model: &mut Model) -> bool {
        model.purging = Some(upto);
        let (_, stopped) = self.serve(vec![move |done| Request::Purge(upto, done)]);
        if !stopped {
            model.purged = Some(upto);
        }
        stopped
    }
}

/// Takes the steps until the disk stops after `operations`; returns whether it has stopped.
fn crash(steps: &[Step], operations: usize, seed: u64) -> Result<bool, TestCaseError> {
    let disk = SimDisk::new();
    let mut subject = open_subject(&disk);
    subject.session.prepare();
    let mut model = Model { term: 1, ..Model::default() };
    disk.stop_after(operations);
    let has_stopped = steps.iter().any(|step| subject.take(step, &mut model));
    drop(subject);
    let mut luck = Luck::new(seed);
    if seed.is_multiple_of(2) {
        disk.cut_power(&mut luck);
    } else {
        disk.switch_on();
    }
    let first = open_subject(&disk).view;
    model.verify(&first)?;
    // What a log has shown after it was opened is durable.
    disk.cut_power(&mut luck);
    let mut second = open_subject(&disk);
    prop_assert_eq!(&second.view, &first);
    // The log works as before.
    let next = first.records.last().map(|record| record.id).max(first.purged).map_or(0, |id| id.index + 1);
    let further = records(99, next..next + 20);
    let added = further.clone();
    prop_assert_eq!(second.serve(vec![move |done| Request::Append(added, done)]), (1, false));
    disk.cut_power(&mut luck);
    let third = open_subject(&disk).view;
    prop_assert_eq!(third.records, [first.records, further].concat());
    Ok(has_stopped)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn power_cuts_at_every_point_lose_no_synced_entry(steps in steps(), seed in any::<u32>()) {
        for operations in 0.. {
            let has_stopped = crash(&steps, operations, u64::from(seed) + operations as u64)?;
            if !has_stopped {
                break;
            }
        }
    }
}

//! A history of real processes: combines four recorders in the format that the checker judges.
//!
//! ```text
//! clients, nemesis ──────────────> Recorder ─┐
//! event feed (times) ────────────> Recorder ─┼─> Story::tell ──> History ──> sim::check
//! rows of the store (contents) ──> Stored ───┤
//! lines of the tasks ────────────> Witness ──┘
//! ```
//!
//! The store is read after the servers have ended. The feed determines the order of its rows: each event is one
//! transition of one job, and must be the next one in that job's history. Feed and rows are written by different
//! code, so a transition that only one of them contains is reported as a discrepancy.

mod commits;
mod stored;

use std::collections::BTreeMap;

use model::{ExecutionId, Timestamp, WorkerId};
use sim::history::{Event, History, Setup, StoreView, TaskStep, What};
use store::Store;

pub use stored::Stored;

use crate::recorder::{Halt, now};
use crate::witness::Line;
use crate::{Recorder, Witness};

/// Maximum time in which the processes of a halted machine resume one after the other, on a busy machine.
const WAKE_SLACK_MILLIS: u64 = 250;

/// A history, and the discrepancies between its recorders.
#[derive(Debug)]
pub struct Story {
    /// The history for the checker.
    pub history: History,
    /// Differences between the feed and the rows.
    pub discrepancies: Vec<String>,
}

impl Story {
    /// Combines the records. The servers of the store must have ended.
    pub async fn tell(recorder: &Recorder, witness: &Witness, store: &dyn Store) -> Self {
        let stored = Stored::read(store).await;
        let log = recorder.log();
        let mut events = log.events.clone();
        let losses: Vec<_> = log.losses().collect();
        let (commits, discrepancies) = commits::commits(&stored, &log.feed, &losses, now());
        events.extend(commits);
        events.extend(tasks(&witness.lines(), &log.halts, &stored));
        events.sort_by_key(|event| event.at);
        events.push(Event { at: now(), what: What::End { unacknowledged: Vec::new() } });
        let setup = Setup {
            store: StoreView::Feed,
            wake_slack: model::Duration::from_millis(WAKE_SLACK_MILLIS),
            ..Setup::default()
        };
        Self { history: History { setup, events }, discrepancies }
    }
}

/// Returns the events of the tasks. A task without further lines was killed after its last line at the earliest. A
/// task on a halted machine did nothing meanwhile.
fn tasks(lines: &[Line], halts: &[Halt], stored: &Stored) -> Vec<Event> {
    let mut runs: BTreeMap<ExecutionId, Vec<&Line>> = BTreeMap::new();
    for line in lines {
        let execution = line.execution.parse().expect("a task knows its execution");
        runs.entry(execution).or_default().push(line);
    }
    let mut events = Vec::new();
    for (execution, lines) in runs {
        let known = stored.executions.get(&execution);
        let worker = known.map_or(WorkerId::from_bits(0), |record| record.worker);
        let mut tell = |at, step| events.push(Event { at, what: What::Task { execution, step } });
        let mut over = false;
        for line in &lines {
            match line.kind.as_str() {
                "start" => tell(
                    time(line),
                    TaskStep::Started {
                        job: line.job.parse().expect("a task knows its job"),
                        fence: model::Fence(line.fence),
                        worker,
                    },
                ),
                "end" => tell(time(line), TaskStep::Ended { exit: 0 }),
                "fail" => tell(time(line), TaskStep::Ended { exit: 1 }),
                _ => continue,
            }
            over |= line.kind != "start";
        }
        let last = lines.last().map(|line| time(line));
        if let (false, Some(at)) = (over, last) {
            tell(at, TaskStep::Killed);
        }
        for halt in halts.iter().filter(|halt| halt.worker == worker) {
            let within = |line: &&&Line| halt.from < time(line) && time(line) < halt.until;
            let around = lines.first().is_some_and(|line| time(line) < halt.from)
                && last.is_some_and(|last| last > halt.until);
            let meant = lines.iter().any(|line| halt.tasks.contains(&line.pid));
            // A line of the task within that time shows that it was not halted.
            if meant && around && lines.iter().find(within).is_none() {
                tell(halt.from, TaskStep::Halted);
                tell(halt.until, TaskStep::Resumed);
            }
        }
    }
    events
}

fn time(line: &Line) -> Timestamp {
    // Microseconds of this century fit into the 53 bits of a float.
    Timestamp::from_micros((line.at * 1e6).round() as i64)
}

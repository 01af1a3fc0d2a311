//! Aggregated results of many histories: figures for a file, and the page that shows them.
//!
//! A [`Tally`] takes one judged history after another. Its [`Results`] are small enough to be committed. [`page`]
//! generates the book's results page from them, so that no figure is typed by hand.
//!
//! # Measurements
//! - *Recovery*: the time from the end of a fault (a killed process may restart, a partition heals) to the next
//!   commit. It starts later if the first demand after the fault (a request, the end of a task) comes later. With
//!   only an event feed, it ends at the next event. Other faults may still be in progress.
//! - *Delay*: the time from the scheduled time of a firing by its schedule's rule to its decision, in engine time.
//!   Firings that waited for their turn, or for a resumed schedule, are excluded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use model::firing::{FiringCause, FiringOutcome};
use model::{JobStatus, Timestamp};
use serde::{Deserialize, Serialize};

use crate::check::{Invariant, Report};
use crate::history::{Answer, History, Row, TaskStep, What};
use crate::mutations::Found;

mod page;

pub use page::{bugs, page};

/// Identifies a run of the simulator or of a storm test, and how to replay it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Name: `simulator`, or the name of a storm test.
    pub name: String,
    /// Commit under test.
    pub commit: String,
    /// Date of the run.
    pub date: String,
    /// Environment and profile.
    pub setting: String,
    /// First seed.
    pub seed: u64,
    /// Command that replays the run.
    pub replay: String,
}

/// Options of a command that searches for deliberate bugs: where to store the results.
#[derive(Debug, clap::Args)]
pub struct BugResultOptions {
    /// File for the found bugs, for the results page.
    #[arg(long)]
    results: Option<PathBuf>,
    /// Commit under test, for that file.
    #[arg(long, env = "BELFRY_COMMIT", default_value = "unknown")]
    commit: String,
    /// Date of the run, for that file.
    #[arg(long, env = "BELFRY_DATE", default_value = "unknown")]
    date: String,
}

impl BugResultOptions {
    /// Writes the found bugs if a file was given.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep(&self, found: Vec<Found>) -> anyhow::Result<()> {
        let Some(path) = &self.results else { return Ok(()) };
        write(path, &Bugs { commit: self.commit.clone(), date: self.date.clone(), found })
    }
}

/// Writes results to a file, as JSON.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, results: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(results)?;
    std::fs::write(path, text + "\n")
        .with_context(|| format!("cannot write the results to `{}`", path.display()))
}

/// Results of a search for deliberate bugs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bugs {
    /// Commit under test.
    pub commit: String,
    /// Date of the search.
    pub date: String,
    /// The found bugs.
    pub found: Vec<Found>,
}

impl Bugs {
    /// Reads found bugs from a file.
    ///
    /// # Errors
    /// If the file cannot be read, or does not contain found bugs.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the results in `{}`", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("`{}` does not contain results", path.display()))
    }
}

/// Distribution of a duration, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// Number of measurements.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}

impl Spread {
    fn of(mut millis: Vec<u64>) -> Self {
        millis.sort_unstable();
        let at = |share: usize| millis.get((millis.len() * share / 100).min(millis.len().saturating_sub(1)));
        Self {
            count: millis.len() as u64,
            p50: at(50).copied().unwrap_or(0),
            p99: at(99).copied().unwrap_or(0),
            max: millis.last().copied().unwrap_or(0),
        }
    }
}

/// Results of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results {
    /// Identification of the run.
    pub run: Run,
    /// Number of judged histories: one for each seed.
    pub histories: u64,
    /// Time that the histories cover, in seconds.
    pub seconds: u64,
    /// Duration of the run, in seconds.
    pub took_seconds: u64,
    /// Inputs that engines handled; 0 if not recorded.
    pub engine_inputs: u64,
    /// Number of accepted jobs.
    pub jobs: u64,
    /// Requests whose outcome clients never learned.
    pub unknown_answers: u64,
    /// Number of started tasks.
    pub tasks: u64,
    /// Scheduled times that needed a ledger entry.
    pub firings: u64,
    /// Jobs that had not ended at the end of their history.
    pub unfinished: u64,
    /// Number of faults, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Number of violations, by invariant.
    pub violations: BTreeMap<String, u64>,
    /// Recovery times, by kind of fault.
    pub recovery: BTreeMap<String, Spread>,
    /// Delay of firings.
    pub lateness: Spread,
}

impl Results {
    fn broken(&self, invariants: &[Invariant]) -> u64 {
        invariants.iter().filter_map(|invariant| self.violations.get(&invariant.to_string())).sum()
    }

    /// Returns the number of faults of all kinds.
    pub fn faults_in_all(&self) -> u64 {
        self.faults.values().sum()
    }
}

/// Aggregates histories.
#[derive(Debug, Default)]
pub struct Tally {
    histories: u64,
    millis: u64,
    jobs: u64,
    unknown_answers: u64,
    tasks: u64,
    firings: u64,
    unfinished: u64,
    faults: BTreeMap<String, u64>,
    violations: BTreeMap<String, u64>,
    recovery: BTreeMap<String, Vec<u64>>,
    lateness: Vec<u64>,
}

impl Tally {
    /// Adds a history and its report.
    pub fn add(&mut self, history: &History, report: &Report) {
        self.histories += 1;
        for (invariant, count) in &report.counts {
            *self.violations.entry(invariant.to_string()).or_default() += count;
        }
        let ends = history.events.first().zip(history.events.last());
        self.millis += ends.map_or(0, |(first, last)| last.at.since(first.at).as_millis());
        let mut one = One::default();
        for event in &history.events {
            self.take(event.at, &event.what, &mut one);
        }
        self.firings += one.instants.len() as u64;
        self.unfinished += one.live.len() as u64;
    }

    fn take(&mut self, at: Timestamp, what: &What, one: &mut One) {
        if matches!(what, What::Asked { .. } | What::Task { step: TaskStep::Ended { .. }, .. }) {
            one.wanted.get_or_insert(at);
        }
        match what {
            What::Asked { request, .. } => drop(one.asked.entry(*request).or_insert(at)),
            What::Answered { request, answer: Answer::Submitted { job } } => {
                self.jobs += u64::from(one.accepted.insert(*job));
                // A client whose request came after the end of a fault learns of a commit before the event feed shows
                // it.
                if let Some(asked) = one.asked.get(request).copied() {
                    self.recovered(at, one, |mended| mended <= asked);
                }
            }
            What::Answered { answer: Answer::Unknown, .. } => self.unknown_answers += 1,
            What::Task { step: TaskStep::Started { .. }, .. } => self.tasks += 1,
            What::Fault { fault, begins: true } => *self.faults.entry(kind(fault)).or_default() += 1,
            What::Fault { fault, begins: false } => one.mended.push((kind(fault), at)),
            What::Commit(commit) => {
                self.recovered(at, one, |_| true);
                one.wanted = None;
                commit.rows.iter().for_each(|row| self.take_row(row, one));
            }
            _ => {}
        }
    }

    /// Records that a demand is durable: all faults with a matching end time have recovered.
    fn recovered(&mut self, at: Timestamp, one: &mut One, which: impl Fn(Timestamp) -> bool) {
        let Some(wanted) = one.wanted else { return };
        for (kind, mended) in one.mended.extract_if(.., |(_, mended)| which(*mended)) {
            let took = at.since(mended.max(wanted)).as_millis();
            self.recovery.entry(kind).or_default().push(took);
        }
    }

    fn take_row(&mut self, row: &Row, one: &mut One) {
        match row {
            Row::Job(row) if row.status.is_final() => drop(one.live.remove(&row.job)),
            Row::Job(row) => drop(one.live.insert(row.job, row.status)),
            Row::Ledger(line) => {
                one.instants.insert((line.schedule, line.generation, line.first, line.last));
                if (line.outcome, line.cause) == (FiringOutcome::Fired, FiringCause::Timer) {
                    self.lateness.push(line.decided_at.since(line.last).as_millis());
                }
            }
            _ => {}
        }
    }

    /// Returns the aggregated results.
    pub fn results(self, run: Run, took: std::time::Duration, engine_inputs: u64) -> Results {
        Results {
            run,
            histories: self.histories,
            seconds: self.millis / 1_000,
            took_seconds: took.as_secs(),
            engine_inputs,
            jobs: self.jobs,
            unknown_answers: self.unknown_answers,
            tasks: self.tasks,
            firings: self.firings,
            unfinished: self.unfinished,
            faults: self.faults,
            violations: self.violations,
            recovery: self.recovery.into_iter().map(|(kind, millis)| (kind, Spread::of(millis))).collect(),
            lateness: Spread::of(self.lateness),
        }
    }
}

/// State within one history.
#[derive(Debug, Default)]
struct One {
    accepted: BTreeSet<model::JobId>,
    live: BTreeMap<model::JobId, JobStatus>,
    instants: BTreeSet<(model::ScheduleId, u64, Timestamp, Timestamp)>,
    /// Time of the first attempt of each request.
    asked: BTreeMap<u64, Timestamp>,
    /// Time of the oldest demand that no commit has met.
    wanted: Option<Timestamp>,
    /// Faults that ended and have not recovered yet, by kind.
    mended: Vec<(String, Timestamp)>,
}

/// Returns the kind of a fault: its description without parameters.
///
/// `CrashServer { server: 1 } at 3s for 2s` is a `crash server`, `Kill(Server, 0)` a `kill server`. A text that is no
/// variant name is its own kind.
fn kind(fault: &str) -> String {
    let is_word = |word: &&str| {
        word.len() > 1 && word.chars().all(char::is_alphabetic) && word.starts_with(char::is_uppercase)
    };
    let named = fault.split(" {").next().and_then(|text| text.split(" at ").next()).unwrap_or(fault);
    let words: Vec<_> = named.split(|c: char| !c.is_alphanumeric()).filter(is_word).collect();
    if words.is_empty() {
        return fault.to_owned();
    }
    let mut text = String::new();
    for c in words.join(" ").chars() {
        if c.is_uppercase() && text.chars().last().is_some_and(|last| last != ' ') {
            text.push(' ');
        }
        text.extend(c.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Ask, Event};
    use crate::run;
    use crate::world::plan::{Plan, Profile};

    #[test]
    fn faults_of_one_kind_have_one_name() {
        for (fault, expected) in [
            ("CrashServer { server: 1 } at 3s for 2s", "crash server"),
            ("DrainLeader at 3s for 0s", "drain leader"),
            ("Kill(Server, 0)", "kill server"),
            ("Road(CutToOne, 2)", "road cut to one"),
            ("FullDisk", "full disk"),
            ("accept before commit", "accept before commit"),
        ] {
            assert_eq!(kind(fault), expected);
        }
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        assert_eq!(
            Spread::of((1..=200).rev().collect()),
            Spread { count: 200, p50: 101, p99: 199, max: 200 }
        );
        assert_eq!(Spread::of(vec![7]), Spread { count: 1, p50: 7, p99: 7, max: 7 });
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }

    /// A feed delivers a commit only after its reconnection, and a client gets its answer before.
    #[test]
    fn only_answers_to_requests_after_a_fault_end_the_recovery() {
        let job = model::JobId::from_bits(7);
        let ask = |request| What::Asked { request, ask: Ask::Submit { tag: "r1".into(), key: None } };
        let answer = |request| What::Answered { request, answer: Answer::Submitted { job } };
        let events = [
            (1_000, ask(1)),
            (2_000, What::Fault { fault: "FullDisk".into(), begins: false }),
            (2_100, answer(1)),
            (2_200, ask(2)),
            (2_700, answer(2)),
        ];
        let event = |(at, what)| Event { at: Timestamp::from_millis(at), what };
        let history = History { events: events.map(event).into(), ..History::default() };
        let mut tally = Tally::default();
        tally.add(&history, &Report::default());
        assert_eq!(tally.recovery, BTreeMap::from([("full disk".into(), vec![700])]));
    }

    #[test]
    fn a_tally_counts_the_events_of_a_world() {
        let (mut tally, mut jobs, mut tasks) = (Tally::default(), 0, 0);
        for seed in 0..8 {
            let played = run::play(&Plan::draw(seed, Profile::Short));
            tally.add(&played.history, &played.report);
            (jobs, tasks) = (jobs + played.stats.jobs, tasks + played.stats.tasks);
        }
        let run = Run {
            name: "simulator".into(),
            commit: "abc".into(),
            date: "2026-11-21".into(),
            setting: "short".into(),
            seed: 0,
            replay: "make sim".into(),
        };
        let results = tally.results(run, std::time::Duration::from_secs(1), 1);
        assert_eq!((results.histories, results.tasks), (8, tasks));
        // Requests that are repeated under a key return the same job.
        assert!(results.jobs > 0 && results.jobs <= jobs, "{} of {jobs}", results.jobs);
        assert!(results.firings > 0 && results.lateness.count > 0 && results.unfinished == 0);
        assert!(results.violations.is_empty() && results.faults_in_all() > 8);
        assert!(!results.recovery.is_empty());
    }
}

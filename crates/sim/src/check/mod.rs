//! Judges a history: does it violate an invariant?
//!
//! Each invariant is a function over an index of the history ([`facts`]), with a cost about linear in its length.
//! What a client cannot know is treated as unknown, never as absent. A [`Violation`] names the invariant, the object,
//! and the few events that show it.
//!
//! - [`jobs`]: accepted jobs exist, once, with a complete history (I1–I6).
//! - [`runs`]: executions: how often, how long, and with which result (I7–I13, I30).
//! - [`checkpoints`]: saved by the current execution, and passed to the next one (I1, I10).
//! - [`schedules`]: each scheduled time once, correctly, in time (I14–I18), compared with an independent [`oracle`].
//! - [`workflows`]: each step once, by its rule, and a run according to its steps; [`triggers`]: runs that are
//!   started by the end of others (I19).
//! - [`limits`]: queues, keys, rates, machines (I20–I22).
//! - [`preemptions`]: which jobs are preempted, and by which (I23).
//! - [`services`]: numbers, availability and rollouts of the replicas of services (I24).
//! - [`cluster`]: nothing is stuck, one owner, memory equals rows (I26–I28).
//! - [`slices`]: the same checks on a history that is too long to be kept; [`memory`]: what they keep between slices.

mod checkpoints;
mod cluster;
mod facts;
pub(crate) mod jobs;
mod limits;
mod memory;
mod oracle;
mod preemptions;
mod runs;
mod schedules;
mod services;
mod slices;
#[cfg(test)]
mod tests;
mod triggers;
mod workflows;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{History, StoreView};
pub use slices::Judge;
use slices::State;

/// Invariants of the system, with the numbers of the reliability page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each has its sentence")]
pub enum Invariant {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
    I9,
    I10,
    I11,
    I12,
    I13,
    I14,
    I15,
    I16,
    I17,
    I18,
    I19,
    I20,
    I21,
    I22,
    I23,
    I24,
    I26,
    I27,
    I28,
    I29,
    I30,
}

impl Invariant {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::I1,
        Self::I2,
        Self::I3,
        Self::I4,
        Self::I5,
        Self::I6,
        Self::I7,
        Self::I8,
        Self::I9,
        Self::I10,
        Self::I11,
        Self::I12,
        Self::I13,
        Self::I14,
        Self::I15,
        Self::I16,
        Self::I17,
        Self::I18,
        Self::I19,
        Self::I20,
        Self::I21,
        Self::I22,
        Self::I23,
        Self::I24,
        Self::I26,
        Self::I27,
        Self::I28,
        Self::I29,
        Self::I30,
    ];

    /// Returns the invariant as a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::I1 => "acknowledged data is not lost",
            Self::I2 => "one idempotency key creates one job",
            Self::I3 => "every job was requested",
            Self::I4 => "the history of every object is complete",
            Self::I5 => "states change only by legal transitions",
            Self::I6 => "nothing is visible before its commit",
            Self::I7 => "a job that may run once starts at most once",
            Self::I8 => "no two executions of a job overlap",
            Self::I9 => "a succeeded job has exactly one accepted result",
            Self::I10 => "fences and epochs only grow, and stale messages change nothing",
            Self::I11 => "a job runs until it succeeds or its retries are exhausted",
            Self::I12 => {
                "only a job's own failures cost a retry, after its backoff, and lost executions are bounded"
            }
            Self::I13 => "timeouts, completion deadlines and cancellations are enforced",
            Self::I14 => "every scheduled time has exactly one ledger entry",
            Self::I15 => "scheduled times follow the rules of the schedule",
            Self::I16 => "nothing starts early, or after its deadline",
            Self::I17 => "concurrent runs of a schedule stay within its overlap policy",
            Self::I18 => "missed runs are caught up as the policy states",
            Self::I19 => "a step runs once, by its join rule, and a run's result follows from its steps",
            Self::I20 => "concurrency limits are enforced",
            Self::I21 => "rate limits are enforced",
            Self::I22 => "no worker is allocated more than its capacity",
            Self::I23 => "only jobs of a lower priority class are preempted, at no cost of retries",
            Self::I24 => "a service reaches its desired replicas, and keeps enough of them available",
            Self::I26 => "nothing is stuck",
            Self::I27 => "a shard has one owner, with only short gaps",
            Self::I28 => "an engine rebuilt from its rows has the same state",
            Self::I29 => "the same seed gives the same history",
            Self::I30 => "reports of finished executions are not lost",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A violation of an invariant.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// The violated invariant.
    pub invariant: Invariant,
    /// The job, schedule, worker or other object.
    pub subject: String,
    /// The observation that violates it.
    pub message: String,
    /// Indexes of the events that show it.
    pub excerpt: Vec<usize>,
}

impl Violation {
    /// Returns the violation with its excerpt as text for people.
    pub fn show(&self, history: &History) -> String {
        let Self { invariant, subject, message, .. } = self;
        let mut text =
            format!("{invariant} ({}) does not hold for {subject}: {message}\n", invariant.sentence());
        let mut indices = self.excerpt.clone();
        indices.sort_unstable();
        indices.dedup();
        for index in indices {
            let Some(event) = history.events.get(index) else { continue };
            let line = serde_json::to_string(event).unwrap_or_default();
            let cut: String = line.chars().take(400).collect();
            text.push_str(&format!("  {index:>6}  {cut}{}\n", if cut.len() < line.len() { "…" } else { "" }));
        }
        text
    }
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The violations, by invariant; at most [`SHOWN`] of each.
    pub violations: Vec<Violation>,
    /// Number of violations of each invariant.
    pub counts: BTreeMap<Invariant, u64>,
    /// Schedules with rules that the oracle does not support: I14 and I15 were not judged for them.
    pub schedules_not_judged: u64,
    /// Invariants that this kind of history cannot show.
    pub not_judged: &'static [NotJudged],
}

/// An invariant, or a part of one, that a history cannot show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotJudged {
    /// The invariant.
    pub invariant: Invariant,
    /// The part that is not judged.
    pub what: &'static str,
}

const fn not(invariant: Invariant, what: &'static str) -> NotJudged {
    NotJudged { invariant, what }
}

/// What a store that was recorded [from its feed](StoreView::Feed) does not show.
const NOT_JUDGED_IN_FEED: &[NotJudged] = &[
    not(Invariant::I5, "whether versions grow"),
    not(Invariant::I6, "whether something was visible before its commit, except if it was never committed"),
    not(Invariant::I10, "the epochs of commits"),
    not(Invariant::I12, "the upper bound of a backoff"),
    not(Invariant::I14, "whether a job, its ledger entry and the cursor are one commit"),
    not(Invariant::I18, "the number of concurrent catch-up firings, if they may wait"),
    not(Invariant::I19, "whether an end started the runs that it triggers"),
    not(Invariant::I21, "all of it: engine time stops and leaps with the wall clock"),
    not(Invariant::I23, "which job preempts another one"),
    not(Invariant::I24, "all of it: a feed contains jobs only"),
    not(Invariant::I27, "all of it: the owner of the shards is unknown"),
    not(Invariant::I28, "all of it: no engine was rebuilt for comparison"),
    not(Invariant::I29, "all of it: a real cluster is not replayed"),
    not(Invariant::I30, "reports that workers still hold"),
];

impl Report {
    /// Whether an invariant is violated.
    pub fn breaks(&self, invariant: Invariant) -> bool {
        self.counts.contains_key(&invariant)
    }
}

/// Maximum number of violations of one invariant that are shown.
pub const SHOWN: usize = 5;

/// Collects violations.
#[derive(Debug, Default)]
struct Findings(Report);

impl Findings {
    fn add(
        &mut self,
        invariant: Invariant,
        subject: impl fmt::Display,
        message: impl Into<String>,
        excerpt: impl IntoIterator<Item = usize>,
    ) {
        let count = self.0.counts.entry(invariant).or_default();
        *count += 1;
        if *count <= SHOWN as u64 {
            let (subject, message) = (subject.to_string(), message.into());
            let excerpt = excerpt.into_iter().collect();
            self.0.violations.push(Violation { invariant, subject, message, excerpt });
        }
    }
}

/// Judges a history by every invariant that its events can show. Invariants that it cannot show are listed as [not
/// judged](Report::not_judged).
///
/// A store may have lost commits since an unknown time, so that I1 cannot hold. Then only I7 and I8 are judged, which
/// must hold in any case. If the time is known, every invariant is judged, with two exceptions. Acknowledgements
/// since that time may be lost. An execution of a lost commit may be started once more, but two may overlap only if
/// the job is `at_least_once`.
pub fn check(history: &History) -> Report {
    let mut state = State::default();
    state.judge_the_rest(history, 0);
    report(state.findings, history)
}

fn report(findings: Findings, history: &History) -> Report {
    let mut report = findings.0;
    report.violations.sort_by_key(|violation| violation.invariant);
    if history.setup.store == StoreView::Feed {
        report.not_judged = NOT_JUDGED_IN_FEED;
    }
    report
}

//! Judges a history: is there anything in it that must never be?
//!
//! Each invariant is a function over an index of the history ([`facts`]); all of them are linear in
//! it, or nearly so. What a client could not know is taken as unknown, never as absent. A
//! [`Violation`] names the invariant, the job or schedule, and the few events that show it.
//!
//! - [`jobs`]: what was accepted is there, once, with a whole history (I1–I6).
//! - [`runs`]: what ran, how often, how long, and with which result (I7–I13, I30).
//! - [`checkpoints`]: what is saved by the current execution, and handed on (I1, I10).
//! - [`schedules`]: every instant once, rightly, in time (I14–I18), by an [`oracle`] of its own.
//! - [`workflows`]: each step once, by its rule, and a run as its steps; [`triggers`]: and what ends start (I19).
//! - [`limits`]: queues, keys, rates, machines (I20–I22).
//! - [`cluster`]: nothing stuck, one owner, memory equals rows (I26–I28).
//! - [`slices`]: the same of a history that is too long to be kept.

mod checkpoints;
mod cluster;
mod facts;
pub(crate) mod jobs;
mod limits;
mod memory;
mod oracle;
mod runs;
mod schedules;
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

/// What must always hold; the numbers are those of the reliability page.
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
        Self::I26,
        Self::I27,
        Self::I28,
        Self::I29,
        Self::I30,
    ];

    /// What it says.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::I1 => "what was acknowledged is not lost",
            Self::I2 => "one key makes one job",
            Self::I3 => "every job was asked for",
            Self::I4 => "the history of each thing is whole",
            Self::I5 => "states only move along the table of legal steps",
            Self::I6 => "nothing is seen before its commit",
            Self::I7 => "what may run once starts once",
            Self::I8 => "no two executions of a job run at the same time",
            Self::I9 => "a success is exactly one accepted result",
            Self::I10 => "fences and epochs only grow, and what is older changes nothing",
            Self::I11 => "what must run at least once does, or its tries end",
            Self::I12 => "only a job's own failures cost it a retry, and it waits its backoff",
            Self::I13 => "timeouts and cancellations hold",
            Self::I14 => "every instant of a schedule is accounted for, once",
            Self::I15 => "nominal instants are those of the rules",
            Self::I16 => "nothing starts early, or after its starting deadline",
            Self::I17 => "a schedule has no more runs at once than its overlap policy lets it have",
            Self::I18 => "what was missed is made up for as the policy says",
            Self::I19 => "a step runs once, when its rule lets it, and a run is what its steps came to",
            Self::I20 => "concurrency limits hold",
            Self::I21 => "rate limits hold",
            Self::I22 => "no machine is given more than it has",
            Self::I26 => "nothing is stuck",
            Self::I27 => "a shard has one owner, and not none for long",
            Self::I28 => "an engine that is rebuilt from its rows is the same",
            Self::I29 => "the same seed gives the same world",
            Self::I30 => "reports survive",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Something that must never be, and was.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// Which invariant does not hold.
    pub invariant: Invariant,
    /// For which job, schedule, worker, ...
    pub subject: String,
    /// What happened instead.
    pub message: String,
    /// The events that show it, by their place in the history.
    pub excerpt: Vec<usize>,
}

impl Violation {
    /// The verdict as people read it, with its excerpt.
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

/// What a check came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Everything that was found, by invariant; at most [`SHOWN`] of each.
    pub violations: Vec<Violation>,
    /// How many there are of each.
    pub counts: BTreeMap<Invariant, u64>,
    /// Schedules whose rules the oracle does not know, so that I14 and I15 were not judged for them.
    pub schedules_not_judged: u64,
    /// What cannot be seen in such a history, and was therefore not judged.
    pub not_judged: &'static [NotJudged],
}

/// An invariant, or a part of one, of which a history tells nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotJudged {
    /// Which.
    pub invariant: Invariant,
    /// What of it.
    pub what: &'static str,
}

const fn not(invariant: Invariant, what: &'static str) -> NotJudged {
    NotJudged { invariant, what }
}

/// What a store that was seen [by its feed](StoreView::Feed) does not tell.
const NOT_IN_A_FEED: &[NotJudged] = &[
    not(Invariant::I5, "whether versions grow"),
    not(Invariant::I6, "whether something was seen before its commit, but for what was never committed"),
    not(Invariant::I10, "the epochs of commits"),
    not(Invariant::I12, "the upper bound of a backoff"),
    not(Invariant::I14, "whether a job, its line and the cursor are one commit"),
    not(Invariant::I18, "how many firings were made up for at once, where they may wait for their turn"),
    not(Invariant::I19, "whether an end started what listens to it"),
    not(Invariant::I21, "all of it: engine time stands still and leaps with the wall clock"),
    not(Invariant::I27, "all of it: who owned the shards is not known"),
    not(Invariant::I28, "all of it: no engine was rebuilt beside a running one"),
    not(Invariant::I29, "all of it: a real world is not played twice"),
    not(Invariant::I30, "the reports that workers still keep"),
];

impl Report {
    /// Whether an invariant was broken.
    pub fn breaks(&self, invariant: Invariant) -> bool {
        self.counts.contains_key(&invariant)
    }
}

/// The most violations of one invariant that are shown.
pub const SHOWN: usize = 5;

/// Gathers what is found.
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

/// Judges a history by every invariant that its events speak of.
///
/// Of what the history cannot show it says that it was [not judged](Report::not_judged).
///
/// Where a store lost commits, and it is not known since when (I1 cannot hold then), only those are judged
/// that must hold all the same: I7 and I8. Where it is known, everything is, but that what was told since then is
/// still there; and what a lost commit had started may be started once more, not beside it unless it may run twice.
pub fn check(history: &History) -> Report {
    let mut state = State::default();
    state.judge_the_rest(history, 0);
    report(state.findings, history)
}

fn report(findings: Findings, history: &History) -> Report {
    let mut report = findings.0;
    report.violations.sort_by_key(|violation| violation.invariant);
    if history.setup.store == StoreView::Feed {
        report.not_judged = NOT_IN_A_FEED;
    }
    report
}

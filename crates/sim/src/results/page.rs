//! Renders results as Markdown tables for the book.
//!
//! [`results`](super) collects the figures of each run in `docs/results`; `make results-page` and a test of the book
//! call this module. A table has one column for each run, and at most five columns, so that it fits a page.
//!
//! # Invariants
//! - The same files give the same text: a test compares the page with it.

use std::fmt::Write as _;

use super::{Bugs, Results, Spread};
use crate::check::Invariant;
use crate::mutations::Found;

/// Rows of the table of violations: label, and the invariants that count.
const PROMISES: &[(&str, &[Invariant])] = &[
    ("lost jobs or reports", &[Invariant::I1, Invariant::I11, Invariant::I30]),
    ("duplicate jobs, or jobs without a submission", &[Invariant::I2, Invariant::I3]),
    ("duplicate or overlapping executions", &[Invariant::I7, Invariant::I8, Invariant::I9]),
    ("visible before the commit, or accepted with an old fence", &[Invariant::I6, Invariant::I10]),
    (
        "firings missing, extra, early or wrong",
        &[Invariant::I14, Invariant::I15, Invariant::I16, Invariant::I18],
    ),
    (
        "limit, policy or capacity exceeded",
        &[
            Invariant::I12,
            Invariant::I13,
            Invariant::I17,
            Invariant::I20,
            Invariant::I21,
            Invariant::I22,
            Invariant::I23,
            Invariant::I24,
        ],
    ),
    ("steps lost, repeated or against their join rule", &[Invariant::I19]),
    ("incomplete histories or illegal transitions", &[Invariant::I4, Invariant::I5]),
    ("stuck objects, or shards without an owner", &[Invariant::I26, Invariant::I27]),
    ("engines that differ from their rows, or between runs of a seed", &[Invariant::I28, Invariant::I29]),
];

/// Titles of faults whose recorded kind is a short name of the nemesis.
const FAULT_TITLES: &[(&str, &str)] = &[
    ("back", "server clock set back"),
    ("burst", "burst of submissions"),
    ("commits unknown", "commits with an unknown outcome"),
    ("halt", "machine stopped"),
    ("leap", "server clock leaps ahead"),
    ("lose last", "last commits lost"),
    ("mute worker", "messages of a worker lost"),
    ("packets cable", "packets of a worker dropped"),
    ("packets from there", "packets from a worker dropped"),
    ("packets to there", "packets to a worker dropped"),
    ("road broken", "worker connections broken"),
    ("road cut", "worker cut off"),
    ("road cut to one", "worker cut off from one server"),
    ("road down cut", "worker cut off, server to worker"),
    ("road flapping", "worker cut off repeatedly"),
    ("road refused", "worker connections refused"),
    ("road slow", "worker connection slow"),
    ("road up cut", "worker cut off, worker to server"),
    ("rough net", "network with loss and delay"),
    ("sessions", "database sessions ended"),
    ("step clock", "server clock stepped"),
    ("store road broken", "database connections broken"),
    ("store road cut", "server cut off from the database"),
    ("store road down cut", "server cut off, database to server"),
    ("store road refused", "database connections refused"),
    ("store road slow", "database connection slow"),
    ("store road up cut", "server cut off, server to database"),
    ("wipe worker", "disk of a worker wiped"),
    ("worker clocks", "worker clocks wrong"),
];

/// Maximum number of runs in a table: more columns do not fit on a page.
const COLUMNS: usize = 5;

/// Returns the tables for these results, in this order.
pub fn page(results: &[Results]) -> String {
    let mut text = String::new();
    let names = distinct_names(results);
    let mut table = |head: &str, rows: &[(String, Vec<String>)]| {
        for first in (0..names.len()).step_by(COLUMNS) {
            let columns = first..names.len().min(first + COLUMNS);
            let shown = &names[columns.clone()];
            let _ = writeln!(text, "| {head} | {} |\n|---|{}", shown.join(" | "), "---|".repeat(shown.len()));
            for (name, cells) in rows {
                let cells = &cells[columns.clone()];
                if cells.iter().any(|cell| !cell.is_empty()) {
                    let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
                }
            }
            text.push('\n');
        }
    };
    let row = |name: &str, cell: &dyn Fn(&Results) -> String| {
        (name.to_owned(), results.iter().map(cell).collect::<Vec<_>>())
    };
    table(
        "run",
        &[
            row("setting", &|r| r.run.setting.clone()),
            row("commit", &|r| format!("`{}`", r.run.commit)),
            row("date", &|r| r.run.date.clone()),
            row("checked histories", &|r| grouped(r.histories)),
            row("first seed", &|r| r.run.seed.to_string()),
            row("time covered", &|r| hours(r.seconds)),
            row("duration", &|r| hours(r.took_seconds)),
            row("engine inputs", &|r| {
                if r.engine_inputs > 0 { grouped(r.engine_inputs) } else { "not recorded".into() }
            }),
            row("jobs accepted", &|r| grouped(r.jobs)),
            row("unknown outcomes", &|r| grouped(r.unknown_answers)),
            row("tasks started", &|r| grouped(r.tasks)),
            row("expected firings", &|r| grouped(r.firings)),
            row("faults", &|r| grouped(r.faults_in_all())),
            row("replay command", &|r| format!("`{}`", r.run.replay)),
        ],
    );
    let mut promises: Vec<_> = PROMISES
        .iter()
        .map(|(name, invariants)| {
            let numbers: Vec<_> = invariants.iter().map(ToString::to_string).collect();
            row(&format!("{name} ({})", numbers.join(", ")), &|r| grouped(r.broken(invariants)))
        })
        .collect();
    promises.push(row("unfinished jobs at the end", &|r| grouped(r.unfinished)));
    promises.push(row("upper bound of violations per job (95 %)", &|r| odds(r.jobs)));
    table("violations", &promises);
    let mut kinds: Vec<_> = results.iter().flat_map(|r| r.faults.keys().cloned()).collect();
    kinds.sort_by(|a, b| title(a).cmp(title(b)));
    kinds.dedup();
    let counts: Vec<_> = kinds
        .iter()
        .map(|kind| {
            row(title(kind), &|r| r.faults.get(kind).map_or_else(String::new, |count| grouped(*count)))
        })
        .collect();
    table("faults", &counts);
    let recovery: Vec<_> = kinds
        .iter()
        .map(|kind| row(title(kind), &|r| r.recovery.get(kind).map_or_else(String::new, spread)))
        .chain([row("delay of firings", &|r| spread(&r.lateness))])
        .collect();
    table("recovery, in ms: p50, p99, max", &recovery);
    text
}

/// Returns the title of a kind of fault.
fn title(kind: &str) -> &str {
    FAULT_TITLES.iter().find(|(recorded, _)| *recorded == kind).map_or(kind, |(_, title)| *title)
}

/// Returns the names of the runs; repeated names are numbered from the second on.
fn distinct_names(results: &[Results]) -> Vec<String> {
    let names: Vec<_> = results.iter().map(|r| r.run.name.as_str()).collect();
    let numbered = names.iter().enumerate().map(|(i, name)| {
        match names[..i].iter().filter(|before| *before == name).count() {
            0 => (*name).to_owned(),
            before => format!("{name} ({})", before + 1),
        }
    });
    numbered.collect()
}

/// Returns the table of deliberate bugs.
pub fn bugs(runs: &[Bugs]) -> String {
    let mut text = String::new();
    for Bugs { commit, date, found } in runs {
        let _ = writeln!(text, "{} bugs, at commit `{commit}` ({date}):\n", found.len());
        text.push_str("| bug | worlds until found | violated invariant |\n|---|---|---|\n");
        for Found { mutation, worlds, broken } in found {
            let _ = writeln!(text, "| {} | {worlds} | {broken} |", mutation.replace('-', " "));
        }
        text.push('\n');
    }
    text
}

fn spread(spread: &Spread) -> String {
    format!("{}, {}, {}", grouped(spread.p50), grouped(spread.p99), grouped(spread.max))
}

/// Upper bound after zero violations in `n` trials: with 95 % certainty fewer than one in `n / 3` (rule of three).
fn odds(trials: u64) -> String {
    if trials < 3 { "unknown".into() } else { format!("1 in {}", grouped(trials / 3)) }
}

fn hours(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h", grouped(seconds / 3_600)),
    }
}

/// Formats `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_formatted_for_people() {
        assert_eq!([grouped(0), grouped(999), grouped(1_234_567)], ["0", "999", "1,234,567"]);
        assert_eq!([hours(119), hours(600), hours(7_200)], ["119 s", "10 min", "2 h"]);
        assert_eq!([odds(0), odds(3_000)], ["unknown", "1 in 1,000"]);
    }

    /// An invariant without a row could be violated without being shown.
    #[test]
    fn every_invariant_has_a_table_row() {
        let shown: Vec<_> = PROMISES.iter().flat_map(|(_, invariants)| *invariants).collect();
        for &invariant in Invariant::ALL {
            assert_eq!(shown.iter().filter(|i| ***i == invariant).count(), 1, "{invariant}");
        }
    }
}

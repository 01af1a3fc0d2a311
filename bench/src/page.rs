//! Generates the book's benchmark page from the stored results: tables, and plots as SVG.
//!
//! - `tables`: all results of Belfry by section, with their goals. `SECTIONS` is the order of the page.
//! - `parts`: the cost of one job, part by part, beside a lower bound of the same machine. `PARTS` defines
//!   the bounds.
//! - `peers`, `peers_latency`: other schedulers.
//! - `plots`, `drawn`: bar charts, as SVG text.
//!
//! The input is `docs/benchmarks/*.json`: one file a benchmark, and `peers*.json`. The page is a pure
//! function of it: the test at the end fails if the page differs, and `make bench-page` runs the same test to
//! write the page.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use plotters::prelude::*;
use serde::Deserialize;

use crate::limits;
use crate::report::{Row, number};
use crate::results::BenchmarkResult;

/// Benchmarks in the order of the page, with their headings.
const SECTIONS: &[(&str, &[&str])] = &[
    ("Jobs, end to end", &["noop", "limits", "spawn", "latency"]),
    ("Submission", &["submit-batch", "submit-single"]),
    ("Many jobs", &["memory", "growth", "reads", "logs"]),
    ("Schedules", &["schedules-idle", "schedules-burst", "schedules-minute"]),
    ("Workflows", &["workflow-steps", "workflow-latency", "workflow-map", "workflow-check"]),
    ("The engine alone", &["engine"]),
    (
        "Servers that share a database",
        &["noop-postgres", "failover", "handover", "failover-million", "handover-million"],
    ),
    ("Servers with the Raft store", &["noop-raft", "failover-raft", "handover-raft", "rebuild-raft"]),
];

/// Phrases in the recorded names of figures, and their replacements in the tables, in this order.
const TITLES: &[(&str, &str)] = &[
    ("jobs through the whole path", "jobs, end to end"),
    ("submitted meanwhile", "submissions at the same time"),
    ("processor time", "CPU time"),
    ("of it: server, store: rows, log, sync", "of which: store thread (rows, WAL, sync)"),
    ("of it: server, engine: decisions, batches", "of which: engine thread (decisions, batches)"),
    ("of it: server, HTTP and gRPC", "of which: HTTP and gRPC of the server"),
    ("of it: server, everything else", "of which: rest of the server"),
    ("of it: ", "of which: "),
    (
        "rows, put into the same tables by SQLite alone",
        "inserts of the rows into the same tables by SQLite alone",
    ),
    ("bytes of the log of these rows", "bytes of these rows in the WAL"),
    (
        "disk: the log of these rows, written and synced, of wall time",
        "disk: write and sync of these rows in the WAL, wall time",
    ),
    (" ended jobs before", " earlier ended jobs"),
    ("1 workers", "1 worker"),
    ("jobs beside the reads", "jobs with reads"),
    (
        "what writing a job costs beside them, ratio",
        "cost of writing a job, with reads divided by without reads",
    ),
    ("a core, while nothing is due", "CPU usage of one core while no schedule fires"),
    ("due in one second: all of them jobs, durable", "schedules in one second: until all jobs are durable"),
    (
        "due within a minute: from its time to its start",
        "schedules within a minute: from scheduled time to start",
    ),
    ("hand-overs: nothing started", "handovers: time without a job start"),
    ("as long before it, p50", "the same before the handovers, p50"),
    (
        "firings meanwhile: from their time to their start",
        "firings during the handovers: from scheduled time to start",
    ),
    ("kills: a job accepted", "kills: until a job is accepted"),
    ("started and ended, p50", "until it has started and ended, p50"),
];

/// Results of `make bench-peers`.
#[derive(Debug, Deserialize)]
pub(crate) struct Peers {
    commit: String,
    date: String,
    peers: Vec<Peer>,
}

#[derive(Debug, Deserialize)]
struct Peer {
    title: String,
    work: String,
    durability: String,
    history: String,
    /// `None` if the peer could not be measured.
    median: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    rounds: Option<usize>,
    missing: Option<String>,
}

/// Results of `make bench-peers LATENCY=1`.
#[derive(Debug, Deserialize)]
pub(crate) struct PeersLatency {
    commit: String,
    date: String,
    peers: Vec<PeerLatency>,
}

#[derive(Debug, Deserialize)]
struct PeerLatency {
    title: String,
    work: String,
    durability: String,
    /// `None` if the peer could not be measured.
    p50: Option<Spread>,
    p99: Option<Spread>,
    rounds: Option<usize>,
    missing: Option<String>,
}

/// A value in milliseconds, over the rounds.
#[derive(Debug, Deserialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

/// A bar of a plot: label, length, and the ends of its whisker.
struct Bar {
    name: String,
    value: f64,
    lowest: f64,
    highest: f64,
}

impl Bar {
    fn of(name: impl Into<String>, row: &Row) -> Self {
        Self { name: name.into(), value: row.median(), lowest: row.lowest(), highest: row.highest() }
    }
}

/// A plot, and its file name.
pub(crate) struct Plot {
    pub(crate) file: &'static str,
    pub(crate) svg: String,
}

/// Returns the tables of all results.
pub(crate) fn tables(kept: &[BenchmarkResult]) -> String {
    let mut text = String::new();
    let known: Vec<&str> = SECTIONS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let others: Vec<&str> =
        kept.iter().map(|k| k.name.as_str()).filter(|name| !known.contains(name)).collect();
    let sections = SECTIONS.iter().map(|&(title, names)| (title, names)).chain([("Others", &others[..])]);
    for (title, names) in sections {
        let found: Vec<_> = names.iter().filter_map(|name| kept.iter().find(|k| k.name == *name)).collect();
        if found.is_empty() {
            continue;
        }
        let _ =
            writeln!(text, "### {title}\n\n| | measured | lowest–highest | goal | |\n|---|---|---|---|---|");
        for kept in &found {
            for row in &kept.rows {
                let verdict = match row.reached() {
                    Some(true) => "reached",
                    Some(false) => "**missed**",
                    None => "",
                };
                let spread = match row.rounds.len() {
                    ..=1 => "one round".to_owned(),
                    rounds => format!("{}–{} in {rounds}", number(row.lowest()), number(row.highest())),
                };
                let unit = if row.unit.is_empty() { String::new() } else { format!(" {}", row.unit) };
                let measured = format!("{}{unit}", number(row.median()));
                let _ = writeln!(
                    text,
                    "| `{}`: {} | {measured} | {spread} | {} | {verdict} |",
                    kept.name,
                    figure_title(&row.what),
                    row.goal()
                );
            }
        }
        text.push('\n');
        for plot in plots_of(&found) {
            let _ = writeln!(text, "![{title}](images/{})\n", plot.file);
        }
        for kept in found {
            let machine = &kept.machine;
            let _ = writeln!(
                text,
                "`{}`: commit `{}`, {}; {} cores of {}, {} GiB, {}.  ",
                kept.again,
                kept.commit,
                kept.date,
                machine.cores,
                machine.processor,
                machine.memory,
                machine.system
            );
        }
        text.push('\n');
    }
    text
}

/// Returns the title of a figure.
fn figure_title(what: &str) -> String {
    TITLES.iter().fold(what.to_owned(), |title, (recorded, shown)| title.replace(recorded, shown))
}

/// A part of the cost of a job, and a lower bound for it.
struct Part {
    what: &'static str,
    measured: (&'static str, &'static str),
    /// Figures whose sum is the lower bound.
    least: &'static [(&'static str, &'static str)],
    is: &'static str,
}

/// Parts of the cost of a job, in the order of the page.
const PARTS: &[Part] = &[
    Part {
        what: "no-op, the store writer thread",
        measured: ("noop", "of it: server, store: rows, log, sync"),
        least: &[("limits", limits::STORE)],
        is: "SQLite alone: inserting the remaining rows, already encoded, into the same tables with prepared statements, 500 jobs \
             per commit. Excludes rows that are deleted when a job ends, encoding, and syncs",
    },
    Part {
        what: "no-op, the engine's thread",
        measured: ("noop", "of it: server, engine: decisions, batches"),
        least: &[("engine", "time of a job")],
        is: "the engine's decisions alone, 1,000 jobs at a time. Excludes the inbox, thread wake-ups, and metrics",
    },
    Part {
        what: "no-op, HTTP and gRPC",
        measured: ("noop", "of it: server, HTTP and gRPC"),
        least: &[("limits", limits::HTTP), ("limits", limits::JSON), ("limits", limits::MESSAGES)],
        is: "reading and answering the same number of bytes with the same library; parsing the body into the API type; encoding \
             and decoding the worker messages. Excludes HTTP/2 frames, validation, and waiting for the commit",
    },
    Part {
        what: "no-op, wall time",
        measured: ("noop", "jobs through the whole path"),
        least: &[("limits", limits::DISK)],
        is: "the disk alone: overwriting and syncing the WAL of the remaining rows, 500 jobs at a time",
    },
    Part {
        what: "`/bin/true`, wall time of both cores",
        measured: ("spawn", "jobs of /bin/true through a worker"),
        least: &[("spawn", "bare spawn and wait of /bin/true, all cores")],
        is: "the kernel and the loader: spawn and wait only",
    },
    Part {
        what: "from submission to start, at 50 a second",
        measured: ("latency", "50 submissions/s, to the start in a process, p50"),
        least: &[(
            "latency",
            "two synced writes and then a bare start of that process, 50 times a second, p50",
        )],
        is: "two consecutive durable writes, and a bare start",
    },
];

/// Returns a figure in microseconds; converts a rate to the time per unit.
fn micros(kept: &[BenchmarkResult], (name, what): (&str, &str)) -> Option<f64> {
    let row = kept.iter().find(|kept| kept.name == name)?.rows.iter().find(|row| row.what == what)?;
    match row.unit.as_str() {
        "µs" => Some(row.median()),
        "ms" => Some(row.median() * 1e3),
        unit if unit.ends_with("/s") => Some(1e6 / row.median()),
        _ => None,
    }
}

/// Returns the table of the cost of a job by part.
///
/// # Errors
/// If a figure is missing.
pub(crate) fn parts(kept: &[BenchmarkResult]) -> anyhow::Result<String> {
    let found = |of: (&str, &str)| micros(kept, of).with_context(|| format!("figure {of:?} is missing"));
    let mut text =
        "| part of a job | measured | lower bound | ratio | definition of the lower bound |\n|---|---|---|---|---|\n"
            .to_owned();
    for Part { what, measured, least, is } in PARTS {
        let measured = found(*measured)?;
        let least = least.iter().map(|&of| found(of)).sum::<anyhow::Result<f64>>()?;
        let (ratio, measured, least) = (number(measured / least), number(measured), number(least));
        let _ = writeln!(text, "| {what} | {measured} µs | {least} µs | {ratio} | {is} |");
    }
    Ok(text)
}

/// Returns the table of peers by throughput.
pub(crate) fn peers(found: &Peers) -> String {
    let rounds = found.peers.iter().filter_map(|peer| peer.rounds).max().unwrap_or(0);
    let mut text = format!(
        "`make bench-peers ROUNDS={rounds}`, commit `{}`, {}.\n\n| | work | per second | lowest–highest | durability | history |\n|---|---|---|---|---|---|\n",
        found.commit, found.date
    );
    for peer in &found.peers {
        let (rate, spread) = match (peer.median, peer.min, peer.max) {
            (Some(median), Some(min), Some(max)) => {
                (number(median), format!("{}–{}", number(min), number(max)))
            }
            _ => (peer.missing.clone().unwrap_or_else(|| "not measured".into()), String::new()),
        };
        let Peer { title, work, durability, history, .. } = peer;
        let _ = writeln!(text, "| {title} | {work} | {rate} | {spread} | {durability} | {history} |");
    }
    text.push_str("\n![No-op jobs a second of each scheduler](images/bench-peers.svg)\n");
    text
}

/// Returns the table of peers by latency.
pub(crate) fn peers_latency(found: &PeersLatency) -> String {
    let rounds = found.peers.iter().filter_map(|peer| peer.rounds).max().unwrap_or(0);
    let mut text = format!(
        "`make bench-peers LATENCY=1 ROUNDS={rounds}`, commit `{}`, {}; milliseconds.\n\n| | the job starts | p50 | lowest–highest | p99 | lowest–highest | durability |\n|---|---|---|---|---|---|---|\n",
        found.commit, found.date
    );
    let shown = |spread: &Option<Spread>| match spread {
        Some(Spread { median, min, max }) => (number(*median), format!("{}–{}", number(*min), number(*max))),
        None => Default::default(),
    };
    for PeerLatency { title, work, durability, p50, p99, missing, .. } in &found.peers {
        let begins = if work == "no-op" { "in a running process" } else { "as a process" };
        let ((p50, p50_spread), (p99, p99_spread)) = (shown(p50), shown(p99));
        let p50 = missing.clone().unwrap_or(p50);
        let _ = writeln!(
            text,
            "| {title} | {begins} | {p50} | {p50_spread} | {p99} | {p99_spread} | {durability} |"
        );
    }
    text
}

/// Returns all plots of the page.
///
/// # Errors
/// If a plot cannot be drawn.
pub(crate) fn plots(kept: &[BenchmarkResult], found: &Peers) -> anyhow::Result<Vec<Plot>> {
    let mut plots = plots_of(&kept.iter().collect::<Vec<_>>());
    let noop = found.peers.iter().filter(|peer| peer.work == "no-op");
    let bars: Vec<_> = noop
        .filter_map(|peer| {
            let (value, lowest, highest) = (peer.median?, peer.min?, peer.max?);
            Some(Bar { name: peer.title.clone(), value, lowest, highest })
        })
        .collect();
    plots.push(Plot { file: "bench-peers.svg", svg: drawn("No-op jobs a second", &bars)? });
    Ok(plots)
}

/// Returns the plots of these benchmarks.
fn plots_of(kept: &[&BenchmarkResult]) -> Vec<Plot> {
    let mut plots = Vec::new();
    let mut plot = |name: &str, file: &'static str, title: &str, wanted: &dyn Fn(&str) -> Option<String>| {
        let Some(kept) = kept.iter().find(|kept| kept.name == name) else { return };
        let bars: Vec<_> =
            kept.rows.iter().filter_map(|row| Some(Bar::of(wanted(&row.what)?, row))).collect();
        // A plot that cannot be drawn is missing on the page, which the test reports.
        if let Ok(svg) = drawn(title, &bars) {
            plots.push(Plot { file, svg });
        }
    };
    let part = |what: &str| what.strip_prefix("of it: ").map(str::to_owned);
    plot("noop", "bench-noop.svg", "Processor time of a no-op job, in µs", &part);
    let delay = |what: &str| (!what.ends_with("slowest")).then(|| what.replace(", to the start in a", ","));
    plot("latency", "bench-latency.svg", "From submission to start, in ms", &delay);
    let growth = |what: &str| what.strip_suffix(", time of a job").map(str::to_owned);
    plot("growth", "bench-growth.svg", "Processor time of a no-op job, in µs", &growth);
    plots
}

/// Reads all results in a folder, by name.
fn all(folder: &Path) -> anyhow::Result<Vec<BenchmarkResult>> {
    let mut found: Vec<BenchmarkResult> = Vec::new();
    for file in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = file?.path();
        let named = path.extension().is_some_and(|ending| ending == "json");
        if named && path.file_stem().is_some_and(|stem| !stem.to_string_lossy().starts_with("peers")) {
            let text = fs::read_to_string(&path)?;
            found.push(serde_json::from_str(&text).with_context(|| path.display().to_string())?);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

const ROW_HEIGHT: u32 = 26;
const WIDTH: u32 = 820;
const INK: RGBColor = RGBColor(90, 90, 90);
const FILL: RGBColor = RGBColor(60, 120, 180);

/// Draws horizontal bars with labels on the left and values on the right.
fn drawn(title: &str, bars: &[Bar]) -> anyhow::Result<String> {
    anyhow::ensure!(!bars.is_empty(), "`{title}` has no bars");
    let mut svg = String::new();
    let rows = u32::try_from(bars.len()).context("a plot has few bars")?;
    let most = bars.iter().map(|bar| bar.highest).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 60 + rows * ROW_HEIGHT)).into_drawing_area();
        area.fill(&WHITE)?;
        let font = ("sans-serif", 14).into_font().color(&INK);
        let bottom = f64::from(rows);
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 17).into_font().color(&INK))
            .margin(10)
            .margin_left(360)
            .margin_right(90)
            .build_cartesian_2d(0.0..most, bottom..0.0)?;
        for (place, bar) in bars.iter().enumerate() {
            let top = f64::from(u32::try_from(place)?);
            let middle = top + 0.5;
            chart
                .draw_series([Rectangle::new([(0.0, top + 0.18), (bar.value, top + 0.82)], FILL.filled())])?;
            chart.draw_series([PathElement::new(
                [(bar.lowest, middle), (bar.highest, middle)],
                INK.stroke_width(2),
            )])?;
            let (x, y) = chart.backend_coord(&(0.0, middle));
            let (end, _) = chart.backend_coord(&(bar.highest, middle));
            let right = font.clone().pos(plotters::style::text_anchor::Pos::new(
                plotters::style::text_anchor::HPos::Right,
                plotters::style::text_anchor::VPos::Center,
            ));
            let left = font.clone().pos(plotters::style::text_anchor::Pos::new(
                plotters::style::text_anchor::HPos::Left,
                plotters::style::text_anchor::VPos::Center,
            ));
            area.draw_text(&bar.name, &right, (x - 8, y))?;
            area.draw_text(&number(bar.value), &left, (end + 8, y))?;
        }
        area.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the environment variable `BELFRY_UPDATE` is set, the page and its plots are written instead.
    #[test]
    fn the_page_shows_the_stored_figures() {
        let docs = harness::repository().join("docs");
        let kept = all(&docs.join("benchmarks")).unwrap();
        let found: Peers =
            serde_json::from_str(&fs::read_to_string(docs.join("benchmarks/peers.json")).unwrap()).unwrap();
        let page = docs.join("src/benchmarks.md");
        harness::pages::assert_generated(&page, "results", &tables(&kept));
        harness::pages::assert_generated(&page, "parts", &parts(&kept).unwrap());
        harness::pages::assert_generated(&page, "peers", &peers(&found));
        let latency = fs::read_to_string(docs.join("benchmarks/peers-latency.json")).unwrap();
        let latency: PeersLatency = serde_json::from_str(&latency).unwrap();
        harness::pages::assert_generated(&page, "peers-latency", &peers_latency(&latency));
        for Plot { file, svg } in plots(&kept, &found).unwrap() {
            let path = docs.join("src/images").join(file);
            if std::env::var_os("BELFRY_UPDATE").is_some() {
                fs::write(&path, &svg).unwrap();
            }
            let shown = fs::read_to_string(&path).unwrap_or_default();
            assert!(shown == svg, "{} is outdated: run `make bench-page`", path.display());
        }
    }

    #[test]
    fn a_plot_has_a_bar_and_a_number_for_each_row() {
        let bar = |name: &str, value| Bar { name: name.into(), value, lowest: value, highest: value };
        let svg = drawn("Jobs", &[bar("one", 1_500.0), bar("two", 3.0)]).unwrap();
        for text in ["one", "two", "1,500", "Jobs"] {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
    }
}

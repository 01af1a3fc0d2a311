//! Draws an answer as a self-contained SVG.
//!
//! From top to bottom: firings, waiting jobs, allocation of all workers, a strip for each worker, and a list of overloads.
//! Overloads are shaded across all panels. Colours follow the dark or light preference of the reader. The SVG has no
//! scripts, fonts or links; its content depends only on the answer and the time zone.

mod axis;
mod canvas;

use std::fmt::Write as _;

use jiff::tz::TimeZone;
use model::Timestamp;

use crate::answer::{Answer, Window, WorkerUse};
use crate::usage::Shares;
use axis::{Axis, in_words, span};
use canvas::{Canvas, Point};

/// Maximum number of workers with a strip; the busiest ones are shown.
const WORKERS_SHOWN: usize = 16;
/// Maximum number of listed overloads; those with the longest waits are shown.
const WINDOWS_SHOWN: usize = 8;
const WIDTH: f64 = 1_080.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 30.0;
const PANEL: f64 = 110.0;
const STRIP: f64 = 16.0;

/// Draws an answer as SVG, with times in the given time zone.
pub fn picture(answer: &Answer, zone: &TimeZone) -> String {
    let axis = Axis::new((answer.from, answer.until), zone, (LEFT, WIDTH - RIGHT));
    let mut canvas = Canvas::default();
    heading(&mut canvas, answer, &axis);
    let mut y = 92.0;
    let bands_from = y;
    y = firings(&mut canvas, answer, &axis, y);
    y = waiting(&mut canvas, answer, &axis, y);
    y = all_workers(&mut canvas, answer, &axis, y);
    y = strips(&mut canvas, answer, &axis, y);
    canvas.behind(|under| ticks(under, &axis, bands_from, y));
    canvas.behind(|under| bands(under, answer, &axis, bands_from, y));
    y = windows_in_words(&mut canvas, answer, &axis, y + 34.0);
    canvas.finish(WIDTH, y + 14.0)
}

fn heading(canvas: &mut Canvas, answer: &Answer, axis: &Axis<'_>) {
    let summary = &answer.summary;
    let title = format!("Forecast for {}", span(axis.zone, answer.from, answer.until));
    canvas.text(Point { x: 24.0, y: 38.0 }, "title", &title);
    let mut told = format!("{} firings of {} schedules", summary.firings, summary.schedules);
    let late = match &summary.latest {
        Some(latest) => format!("{} late, up to {} ({})", summary.late, in_words(latest.by), latest.name),
        None => "none late".to_owned(),
    };
    let _ = write!(told, " · {late} · {} skipped", summary.skipped_in_all());
    let overloaded = match answer.overloads.len() {
        0 => "no overload".to_owned(),
        _ => format!("overloaded for {}", in_words(summary.overloaded)),
    };
    let used = summary.used.highest() * 100.0;
    let _ = write!(told, " · {overloaded} · workers {used:.0} % used");
    canvas.text(Point { x: 24.0, y: 62.0 }, "told", &told);
}

fn panel_title(canvas: &mut Canvas, y: f64, title: &str, under: &[(&str, &str)]) {
    canvas.text(Point { x: 24.0, y: y + 14.0 }, "panel", title);
    for (line, (class, word)) in under.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a few lines")]
        let y = y + 34.0 + 17.0 * line as f64;
        canvas.rect(Point { x: 24.0, y: y - 9.0 }, 10.0, 10.0, class, None);
        canvas.text(Point { x: 40.0, y }, "key", word);
    }
}

fn firings(canvas: &mut Canvas, answer: &Answer, axis: &Axis<'_>, y: f64) -> f64 {
    panel_title(canvas, y, "Firings", &[("firing", "on time"), ("late", "late")]);
    let most = answer.over_time.iter().map(|bucket| bucket.firings.max(bucket.late)).max().unwrap_or(0);
    scale(canvas, y, &most.to_string());
    for bucket in &answer.over_time {
        let (from, to) = axis.part(bucket.from, answer.bucket);
        let told = format!("{}: {} firings, {} late", axis.clock(bucket.from), bucket.firings, bucket.late);
        let mut bar = |count: u64, class| {
            let height = part(count, most) * PANEL;
            let place = Point { x: from, y: y + PANEL - height };
            if height > 0.0 {
                canvas.rect(place, (to - from - 0.6).max(0.4), height, class, Some(&told));
            }
        };
        bar(bucket.firings.max(bucket.late), "firing");
        bar(bucket.late, "late");
    }
    canvas.line(LEFT, WIDTH - RIGHT, y + PANEL);
    y + PANEL + 30.0
}

fn waiting(canvas: &mut Canvas, answer: &Answer, axis: &Axis<'_>, y: f64) -> f64 {
    panel_title(canvas, y, "Waiting", &[("waiting", "peak jobs"), ("band-key", "overload")]);
    let most = answer.over_time.iter().map(|bucket| bucket.waiting_most).max().unwrap_or(0);
    scale(canvas, y, &most.to_string());
    let heights = answer.over_time.iter().map(|bucket| (bucket.from, part(bucket.waiting_most, most)));
    let (area, _) = steps(heights, answer, axis, y);
    canvas.path(&area, "waiting");
    canvas.line(LEFT, WIDTH - RIGHT, y + PANEL);
    y + PANEL + 30.0
}

fn all_workers(canvas: &mut Canvas, answer: &Answer, axis: &Axis<'_>, y: f64) -> f64 {
    let keys = [("cpu", "CPU"), ("memory", "memory"), ("slots", "slots")];
    panel_title(canvas, y, "Workers", &keys);
    scale(canvas, y, "100 %");
    for (class, _) in keys.into_iter().rev() {
        let share = |shares: &Shares| match class {
            "cpu" => shares.cpu,
            "memory" => shares.memory,
            _ => shares.slots,
        };
        let parts = answer.over_time.iter().zip(&answer.used);
        let heights = parts.map(|(bucket, shares)| (bucket.from, share(shares).min(1.0)));
        let (area, line) = steps(heights, answer, axis, y);
        if class == "cpu" {
            canvas.path(&area, "cpu-area");
        }
        canvas.path(&line, &format!("{class}-line"));
    }
    canvas.line(LEFT, WIDTH - RIGHT, y + PANEL);
    y + PANEL + 26.0
}

/// Draws a strip for each of the busiest workers: a darker shade is a higher allocation of the scarcest resource.
fn strips(canvas: &mut Canvas, answer: &Answer, axis: &Axis<'_>, mut y: f64) -> f64 {
    let mut workers: Vec<&WorkerUse> = answer.workers.iter().collect();
    workers.sort_by(|a, b| {
        let busier = b.average.highest().total_cmp(&a.average.highest());
        busier.then_with(|| a.name.cmp(&b.name))
    });
    for worker in workers.iter().take(WORKERS_SHOWN) {
        canvas.text(Point { x: 24.0, y: y + 12.0 }, "key", &shortened(&worker.name, 18));
        for (bucket, shares) in answer.over_time.iter().zip(&worker.used) {
            let (from, to) = axis.part(bucket.from, answer.bucket);
            let told = format!(
                "{} at {}: CPU {:.0} %, memory {:.0} %, slots {:.0} %",
                worker.name,
                axis.clock(bucket.from),
                shares.cpu * 100.0,
                shares.memory * 100.0,
                shares.slots * 100.0
            );
            canvas.shade(Point { x: from, y }, to - from, STRIP - 3.0, shares.highest().min(1.0), &told);
        }
        y += STRIP;
    }
    let more = workers.len().saturating_sub(WORKERS_SHOWN);
    if more > 0 {
        canvas.text(Point { x: 24.0, y: y + 12.0 }, "key", &format!("and {more} more"));
        y += STRIP;
    }
    y + 4.0
}

fn ticks(canvas: &mut Canvas, axis: &Axis<'_>, top: f64, bottom: f64) {
    for tick in axis.ticks() {
        canvas.upright(tick.x, top, bottom);
        canvas.text(
            Point { x: tick.x, y: bottom + 16.0 },
            if tick.is_day { "tick day" } else { "tick" },
            &tick.label,
        );
    }
}

fn bands(canvas: &mut Canvas, answer: &Answer, axis: &Axis<'_>, top: f64, bottom: f64) {
    for window in &answer.overloads {
        let (from, to) = (axis.x(window.from), axis.x(window.until));
        let told = sentence(window, axis);
        canvas.rect(Point { x: from, y: top }, (to - from).max(1.0), bottom - top, "band", Some(&told));
    }
}

fn windows_in_words(canvas: &mut Canvas, answer: &Answer, axis: &Axis<'_>, mut y: f64) -> f64 {
    if answer.overloads.is_empty() {
        return y - 10.0;
    }
    let mut worst: Vec<&Window> = answer.overloads.iter().collect();
    worst.sort_by_key(|window| std::cmp::Reverse(window.longest.by));
    let more = worst.len().saturating_sub(WINDOWS_SHOWN);
    worst.truncate(WINDOWS_SHOWN);
    worst.sort_by_key(|window| window.from);
    y += 20.0;
    canvas.text(Point { x: 24.0, y }, "panel", "Overloads");
    for window in worst {
        canvas.text(Point { x: LEFT, y }, "key", &sentence(window, axis));
        y += 18.0;
    }
    if more > 0 {
        canvas.text(Point { x: LEFT, y }, "key", &format!("and {more} more"));
        y += 18.0;
    }
    y
}

fn sentence(window: &Window, axis: &Axis<'_>) -> String {
    let when = span(axis.zone, window.from, window.until);
    let why = window.why.iter().take(2).map(|holds| holds.cause.to_string()).collect::<Vec<_>>().join(", ");
    let why = if why.is_empty() { why } else { format!(" · {why}") };
    format!(
        "{when} · {} · jobs waiting too long: {} · longest: {} ({}){why}",
        window.group,
        window.jobs,
        shortened(&window.longest.name, 40),
        in_words(window.longest.by)
    )
}

/// Returns the path of an area and the path of its upper edge, with a step for each bucket.
fn steps(
    heights: impl Iterator<Item = (Timestamp, f64)>,
    answer: &Answer,
    axis: &Axis<'_>,
    y: f64,
) -> (String, String) {
    let (base, mut line, mut end) = (y + PANEL, String::new(), LEFT);
    for (at, height) in heights {
        let (from, to) = axis.part(at, answer.bucket);
        let sign = if line.is_empty() { 'M' } else { 'L' };
        let top = base - height * PANEL;
        let _ = write!(line, "{sign}{from:.1} {top:.1}L{to:.1} {top:.1}");
        end = to;
    }
    (format!("{line}L{end:.1} {base:.1}L{LEFT:.1} {base:.1}Z"), line)
}

fn scale(canvas: &mut Canvas, y: f64, most: &str) {
    canvas.text(Point { x: LEFT - 8.0, y: y + 10.0 }, "scale", most);
    canvas.text(Point { x: LEFT - 8.0, y: y + PANEL }, "scale", "0");
}

#[expect(clippy::cast_precision_loss, reason = "drawn to a tenth of a pixel")]
fn part(count: u64, most: u64) -> f64 {
    if most == 0 { 0.0 } else { count as f64 / most as f64 }
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}

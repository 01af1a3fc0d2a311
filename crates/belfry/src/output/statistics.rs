//! Table of `belfry stats`.

use model::api::{Distribution, StatisticsSubject, StatisticsTotal};

use super::OutputOptions;
use super::table::{Cell, Column, Row, Tone, column, wide};
use super::text::escape;
use super::time::format_duration;

impl Row for StatisticsTotal {
    const COLUMNS: &'static [Column] = &[
        column("NAME", 24).cut(20),
        column("SUBMITTED", 9),
        column("SUCCEEDED", 9).optional(1),
        column("FAILED", 8),
        column("RETRIED", 8).optional(4),
        column("DELAY P95", 9).optional(2),
        column("RUN P50", 8).optional(3),
        column("RUN P95", 8),
        wide("CANCELLED", 9),
        wide("EXPIRED", 8),
        wide("STARTED", 8),
        wide("DELAY P50", 9),
        wide("RUN MEAN", 8),
        wide("CAUSES", 20),
    ];

    fn cells(&self, _: &OutputOptions) -> Vec<Cell> {
        let counts = &self.counts;
        let name = subject(&self.subject);
        // The name of a job is no argument of a command; all other names and the IDs are.
        let name = if self.subject.job.is_some() { name.into() } else { Cell::whole(name) };
        let (delay, run) = (counts.start_delay.as_ref(), counts.run_time.as_ref());
        let time = |of: Option<&Distribution>, part: fn(&Distribution) -> model::Duration| {
            Cell::from(of.map(|of| format_duration(part(of))))
        };
        let bad = |count: u64| Cell::new(count.to_string(), if count > 0 { Tone::Bad } else { Tone::Plain });
        let causes: Vec<_> =
            counts.failed_by_cause.iter().map(|(cause, count)| format!("{cause}={count}")).collect();
        vec![
            name,
            counts.submitted.to_string().into(),
            counts.succeeded.to_string().into(),
            bad(counts.failed),
            counts.retried.to_string().into(),
            time(delay, |of| of.p95),
            time(run, |of| of.p50),
            time(run, |of| of.p95),
            counts.cancelled.to_string().into(),
            bad(counts.expired),
            counts.started.to_string().into(),
            time(delay, |of| of.p50),
            time(run, |of| of.mean),
            (!causes.is_empty()).then(|| causes.join(",")).into(),
        ]
    }

    fn name(&self) -> String {
        escape(&subject(&self.subject))
    }
}

/// Returns the name of a subject: `import`, `ops/import` outside the namespace `default`, or an id.
fn subject(subject: &StatisticsSubject) -> String {
    let StatisticsSubject { namespace, queue, job, other_jobs, schedule_id, worker_id } = subject;
    let id = schedule_id.map(|id| id.to_string()).or(worker_id.map(|id| id.to_string()));
    let name = if *other_jobs { Some("(other names)") } else { job.as_deref() };
    match (namespace.as_deref(), name) {
        (None | Some("default"), Some(name)) => name.to_owned(),
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        (Some(namespace), None) => namespace.to_owned(),
        (None, None) => id.or(queue.clone()).unwrap_or_else(|| "all".to_owned()),
    }
}

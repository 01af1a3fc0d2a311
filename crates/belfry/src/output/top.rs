//! Page of `belfry top`: totals, rates, queues and workers at one time.
//!
//! [`Activity`] has the counts of the last minutes, from the statistics of the server; [`Load`] adds what queues and
//! workers have now, and what executions use. [`page`] formats it: a summary, then one table each for queues, workers and
//! the executions that use most. With a limit of lines,
//! each table shows its most loaded rows and how many are left out, so the page fits the terminal.
//!
//! Free resources are those of ready workers that accept new executions: a cordoned or lost worker starts nothing.

use std::collections::BTreeMap;

use model::api::{Distribution, ExecutionUsage, Queue, StatisticsCounts, Worker};
use model::worker::{Admission, WorkerStatus};
use model::{Timestamp, WorkerId};
use serde::Serialize;

use super::OutputOptions;
use super::machines::worker_status;
use super::objects::{at, queue_status};
use super::table::{Cell, Column, Row, Tone, column, rows, wide};
use super::text::{bytes, count};
use super::time::format_duration;

/// What happened in a range, for all jobs and by queue.
#[derive(Debug, Serialize)]
pub(crate) struct Activity {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) total: StatisticsCounts,
    /// Counts by name of the queue; a queue without any has no entry.
    pub(crate) queues: BTreeMap<String, StatisticsCounts>,
}

impl Activity {
    /// Returns a count as a rate for each minute: `0`, `0.4`, `12`.
    fn per_minute(&self, count: u64) -> String {
        let millis = self.until.since(self.from).as_millis().max(1);
        let tenths = count.saturating_mul(600_000) / millis;
        match tenths {
            0 if count > 0 => "<0.1".to_owned(),
            tenths if tenths >= 100 || tenths.is_multiple_of(10) => (tenths / 10).to_string(),
            tenths => format!("{}.{}", tenths / 10, tenths % 10),
        }
    }
}

/// Load of all queues and workers at one time.
#[derive(Debug, Serialize)]
pub(crate) struct Load {
    pub(crate) at: Timestamp,
    pub(crate) activity: Activity,
    pub(crate) queues: Vec<Queue>,
    pub(crate) workers: Vec<Worker>,
    /// Executions that use most, highest first.
    pub(crate) executions: Vec<ExecutionUsage>,
}

/// Formats the page. With `lines_max`, the queues with the longest backlog and the busiest workers are shown.
pub(crate) fn page(look: &OutputOptions, load: &Load, lines_max: Option<usize>) -> String {
    let mut text = summary(load);
    let mut queues: Vec<_> =
        load.queues.iter().map(|queue| QueueLoad { queue, activity: &load.activity }).collect();
    queues.sort_by_key(|load| std::cmp::Reverse((load.queue.waiting, load.queue.running)));
    let mut workers: Vec<_> = load.workers.iter().map(WorkerLoad).collect();
    workers.sort_by_key(|load| std::cmp::Reverse(load.0.allocated.executions));
    let names: BTreeMap<_, _> = load.workers.iter().map(|worker| (worker.id, worker.name.as_str())).collect();
    let executions: Vec<_> =
        load.executions.iter().map(|usage| ExecutionLoad { usage, workers: &names }).collect();
    // Besides the rows: the summary, and for each table an empty line and the headings.
    let (mut queues_max, mut workers_max, mut executions_max) = (usize::MAX, usize::MAX, usize::MAX);
    if let Some(lines) = lines_max {
        let headings = if executions.is_empty() { 4 } else { 6 };
        let free = lines.saturating_sub(text.lines().count() + headings);
        let of_executions = executions.len().min(free / 3);
        let others = free - of_executions;
        queues_max = others.saturating_sub(workers.len()).max(others / 2).max(1);
        workers_max = others.saturating_sub(queues.len().min(queues_max)).max(1);
        let used = queues.len().min(queues_max) + workers.len().min(workers_max);
        executions_max = free.saturating_sub(used).max(1);
    }
    text.push('\n');
    text.push_str(&part(look, &queues, queues_max, "no queues"));
    text.push('\n');
    text.push_str(&part(look, &workers, workers_max, "no workers"));
    if !executions.is_empty() {
        text.push('\n');
        text.push_str(&part(look, &executions, executions_max, ""));
    }
    text
}

fn part<T: Row>(look: &OutputOptions, items: &[T], max: usize, none: &str) -> String {
    if items.is_empty() {
        return format!("{none}\n");
    }
    if items.len() <= max {
        return rows(look, items);
    }
    // The note takes the line of a row.
    let shown = max.saturating_sub(1);
    rows(look, &items[..shown]) + &format!("… and {} more\n", items.len() - shown)
}

fn summary(load: &Load) -> String {
    let waiting: u64 = load.queues.iter().map(|queue| queue.waiting).sum();
    let running: u64 = load.queues.iter().map(|queue| queue.running).sum();
    let paused = load.queues.iter().filter(|queue| queue.settings.paused).count() as u64;
    let ready: Vec<_> = load.workers.iter().filter(|worker| takes_executions(worker)).collect();
    let sum = |part: fn(&Worker) -> (u64, u64)| {
        ready.iter().map(|worker| part(worker)).fold((0, 0), |(used, all), (u, a)| (used + u, all + a))
    };
    let (slots_used, slots) = sum(|w| (w.allocated.executions.into(), w.capacity.slots.into()));
    let (cpu_used, cpu) = sum(|w| (w.allocated.cpu.0.into(), w.capacity.cpu.0.into()));
    let (memory_used, memory) = sum(|w| (w.allocated.memory.0, w.capacity.memory.0));
    let Activity { from, until, total, .. } = &load.activity;
    let rates = [
        ("submitted", total.submitted),
        ("started", total.started),
        ("succeeded", total.succeeded),
        ("failed", total.failed),
    ];
    let rates: Vec<_> =
        rates.iter().map(|(what, count)| format!("{} {what}", load.activity.per_minute(*count))).collect();
    let pauses = if paused > 0 { format!(" ({} paused)", count(paused, "queue")) } else { String::new() };
    format!(
        "Jobs:     {waiting} waiting, {running} running{pauses}\n\
         Workers:  {} of {} accept executions\n\
         Free:     {} of {} slots, {} of {} CPU, {} of {} memory\n\
         Per min:  {} (last {})\n",
        ready.len(),
        load.workers.len(),
        slots.saturating_sub(slots_used),
        slots,
        cores(cpu.saturating_sub(cpu_used)),
        cores(cpu),
        bytes(memory.saturating_sub(memory_used)),
        bytes(memory),
        rates.join(", "),
        format_duration(until.since(*from)),
    )
}

/// Formats a number of cores: `4`, `0.5`, `7.25`.
fn cores(millis: u64) -> String {
    let text = format!("{}.{:03}", millis / 1_000, millis % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn takes_executions(worker: &Worker) -> bool {
    worker.status == WorkerStatus::Ready && worker.admission == Admission::Open
}

/// Row of a queue.
#[derive(Serialize)]
struct QueueLoad<'a> {
    queue: &'a Queue,
    #[serde(skip)]
    activity: &'a Activity,
}

impl Row for QueueLoad<'_> {
    const COLUMNS: &'static [Column] = &[
        column("QUEUE", 16),
        column("STATUS", 6),
        column("WAITING", 7),
        column("RUNNING", 7),
        column("LIMIT", 5).optional(2),
        column("OLDEST WAITING", 14).optional(3),
        column("STARTED/MIN", 11),
        column("FAILED/MIN", 10).optional(1),
        column("DELAY P95", 9).optional(4),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        let Self { queue, activity } = self;
        let counts = activity.queues.get(&queue.name);
        let rate = |part: fn(&StatisticsCounts) -> u64| activity.per_minute(counts.map_or(0, part));
        let failed = counts.map_or(0, |counts| counts.failed);
        let delay: Option<&Distribution> = counts.and_then(|counts| counts.start_delay.as_ref());
        vec![
            queue.name.as_str().into(),
            queue_status(queue),
            Cell::new(queue.waiting.to_string(), if queue.waiting > 0 { Tone::Waiting } else { Tone::Plain }),
            Cell::new(queue.running.to_string(), if queue.running > 0 { Tone::Busy } else { Tone::Plain }),
            queue.settings.concurrency.map(|limit| limit.to_string()).into(),
            at(look, queue.oldest_waiting_since),
            rate(|counts| counts.started).into(),
            Cell::new(rate(|counts| counts.failed), if failed > 0 { Tone::Bad } else { Tone::Plain }),
            delay.map(|delay| format_duration(delay.p95)).into(),
        ]
    }

    fn name(&self) -> String {
        self.queue.name.clone()
    }
}

/// Row of a worker.
#[derive(Serialize)]
struct WorkerLoad<'a>(&'a Worker);

impl Row for WorkerLoad<'_> {
    const COLUMNS: &'static [Column] = &[
        column("WORKER", 16),
        column("STATUS", 9),
        column("SLOTS", 12),
        column("CPU", 12),
        column("MEMORY", 24).optional(1),
        wide("ID", 30),
    ];

    fn cells(&self, _: &OutputOptions) -> Vec<Cell> {
        let Worker { allocated, capacity, .. } = self.0;
        let used = |text: String, used: u64, all: u64| {
            let percent = (used * 100).checked_div(all).unwrap_or_default();
            let tone = if percent >= 100 { Tone::Busy } else { Tone::Plain };
            Cell::new(format!("{text} ({percent} %)"), tone)
        };
        let memory = format!("{}/{}", bytes(allocated.memory.0), bytes(capacity.memory.0));
        vec![
            self.0.name.as_str().into(),
            worker_status(self.0),
            used(
                format!("{}/{}", allocated.executions, capacity.slots),
                allocated.executions.into(),
                capacity.slots.into(),
            ),
            used(
                format!("{}/{}", cores(allocated.cpu.0.into()), cores(capacity.cpu.0.into())),
                allocated.cpu.0.into(),
                capacity.cpu.0.into(),
            ),
            used(memory, allocated.memory.0, capacity.memory.0),
            self.0.id.to_string().into(),
        ]
    }

    fn name(&self) -> String {
        self.0.id.to_string()
    }
}

/// Row of an execution.
#[derive(Serialize)]
struct ExecutionLoad<'a> {
    usage: &'a ExecutionUsage,
    /// Names of the workers.
    #[serde(skip)]
    workers: &'a BTreeMap<WorkerId, &'a str>,
}

impl Row for ExecutionLoad<'_> {
    const COLUMNS: &'static [Column] = &[
        column("JOB", 16),
        column("CPU", 9),
        column("MEMORY", 20),
        column("DISK", 12).optional(2),
        column("WORKER", 10).optional(1),
        wide("NAMESPACE", 12),
        wide("ID", 30),
        wide("JOB ID", 30),
    ];

    fn cells(&self, _: &OutputOptions) -> Vec<Cell> {
        let ExecutionUsage { usage, cpu_request, memory_request, worker_id, .. } = self.usage;
        let beside =
            |text: String, is_over: bool| Cell::new(text, if is_over { Tone::Busy } else { Tone::Plain });
        let disk = usage.read_bytes_per_second.saturating_add(usage.written_bytes_per_second);
        vec![
            self.usage.job_name.as_str().into(),
            beside(
                format!("{}/{}", cores(usage.cpu.0.into()), cores(cpu_request.0.into())),
                usage.cpu > *cpu_request,
            ),
            beside(
                format!("{}/{}", bytes(usage.memory.0), bytes(memory_request.0)),
                usage.memory > *memory_request,
            ),
            format!("{}/s", bytes(disk)).into(),
            self.workers.get(worker_id).copied().into(),
            self.usage.namespace.as_str().into(),
            self.usage.execution_id.to_string().into(),
            self.usage.job_id.to_string().into(),
        ]
    }

    fn name(&self) -> String {
        self.usage.execution_id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Format;

    #[test]
    fn cores_are_shown_without_a_unit() {
        assert_eq!([0, 4_000, 500, 7_250, 10].map(cores), ["0", "4", "0.5", "7.25", "0.01"]);
    }

    fn look() -> OutputOptions {
        let now = "2026-11-21T08:10:00Z".parse().unwrap();
        OutputOptions { format: Format::Table, color: false, now, width: Some(80) }
    }

    fn counts(submitted: u64, failed: u64) -> StatisticsCounts {
        serde_json::from_value(json!({
            "submitted": submitted, "started": submitted, "succeeded": submitted - failed, "failed": failed,
            "cancelled": 0, "expired": 0, "retried": 0,
        }))
        .unwrap()
    }

    fn load() -> Load {
        let queue = |name: &str, waiting: u64, paused: bool| -> Queue {
            let mut queue = json!({"name": name, "settings": {"paused": paused, "concurrency": 4}, "version": 1,
                                   "waiting": waiting, "running": 2});
            if waiting > 0 {
                queue["oldest_waiting_since"] = json!("2026-11-21T08:09:00Z");
            }
            serde_json::from_value(queue).unwrap()
        };
        let worker = |name: &str, status: &str, executions: u32| -> Worker {
            serde_json::from_value(json!({
                "id": "wkr_01k9zq3m6c0000000000000000", "name": name, "version": "0.1.0", "labels": {},
                "status": status, "admission": "open",
                "capacity": {"cpu": "4", "memory": "8GiB", "slots": 8},
                "capabilities": {"runtimes": ["process"], "memory_limit": true, "cpu_limit": true,
                                 "pids_limit": false, "separate_user": true},
                "allocated": {"executions": executions, "cpu": "300m", "memory": "192MiB"},
                "created_at": "2026-11-20T08:00:00Z", "updated_at": "2026-11-20T08:00:00Z",
            }))
            .unwrap()
        };
        let execution = |name: &str, cpu: &str, memory: &str| -> ExecutionUsage {
            serde_json::from_value(json!({
                "execution_id": "exe_01k9zq3m6c0000000000000000", "job_id": "job_01k9zq3m6c0000000000000000",
                "job_name": name, "namespace": "default", "queue": "mail",
                "worker_id": "wkr_01k9zq3m6c0000000000000000", "cpu_request": "500m", "memory_request": "64MiB",
                "usage": {"at": "2026-11-21T08:09:59Z", "cpu": cpu, "memory": memory, "read_bytes_per_second": 0,
                          "written_bytes_per_second": 1_048_576, "processes": 3},
            }))
            .unwrap()
        };
        Load {
            at: "2026-11-21T08:10:00Z".parse().unwrap(),
            executions: vec![execution("train", "1500m", "1GiB"), execution("send-mail", "20m", "10MiB")],
            activity: Activity {
                from: "2026-11-21T08:05:00Z".parse().unwrap(),
                until: "2026-11-21T08:10:00Z".parse().unwrap(),
                total: counts(62, 2),
                queues: [("mail".to_owned(), counts(62, 2))].into(),
            },
            queues: vec![queue("default", 0, false), queue("mail", 316, true)],
            workers: vec![worker("w1", "ready", 3), worker("w2", "ready", 8), worker("w3", "lost", 0)],
        }
    }

    #[test]
    fn a_page_shows_totals_rates_queues_and_workers() {
        insta::assert_snapshot!(page(&look(), &load(), None), @r"
        Jobs:     316 waiting, 4 running (1 queue paused)
        Workers:  2 of 3 accept executions
        Free:     5 of 16 slots, 7.4 of 8 CPU, 15.6 GiB of 16.0 GiB memory
        Per min:  12 submitted, 12 started, 12 succeeded, 0.4 failed (last 5m)

        QUEUE    STATUS  WAITING  RUNNING  LIMIT  STARTED/MIN  FAILED/MIN
        mail     paused  316      2        4      12           0.4
        default  open    0        2        4      0            0

        WORKER  STATUS  SLOTS        CPU          MEMORY
        w2      ready   8/8 (100 %)  0.3/4 (7 %)  192.0 MiB/8.0 GiB (2 %)
        w1      ready   3/8 (37 %)   0.3/4 (7 %)  192.0 MiB/8.0 GiB (2 %)
        w3      lost    0/8 (0 %)    0.3/4 (7 %)  192.0 MiB/8.0 GiB (2 %)

        JOB        CPU       MEMORY             DISK       WORKER
        train      1.5/0.5   1.0 GiB/64.0 MiB   1.0 MiB/s  w3
        send-mail  0.02/0.5  10.0 MiB/64.0 MiB  1.0 MiB/s  w3
        ");
    }

    #[test]
    fn a_page_has_at_most_the_lines_of_the_terminal() {
        let mut load = load();
        let (queue, worker) = (load.queues[0].clone(), load.workers[0].clone());
        let execution = load.executions[0].clone();
        load.queues.extend(std::iter::repeat_n(queue, 40));
        for (workers, executions) in [(3, 0), (40, 0), (3, 20), (40, 20)] {
            load.workers = vec![worker.clone(); workers];
            load.executions = vec![execution.clone(); executions];
            let text = page(&look(), &load, Some(23));
            assert_eq!(text.lines().count(), 23, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert!(text.contains("mail"), "the queue with the longest backlog is shown: {text}");
        }
    }

    #[test]
    fn a_rate_is_as_exact_as_its_size_asks_for() {
        let activity = load().activity;
        let shown = [0, 1, 2, 5, 49, 50, 51, 5_000].map(|count| activity.per_minute(count));
        assert_eq!(shown, ["0", "0.2", "0.4", "1", "9.8", "10", "10", "1000"]);
        let day = Activity { from: activity.until - model::Duration::from_hours(24), ..activity };
        assert_eq!(day.per_minute(1), "<0.1");
    }
}

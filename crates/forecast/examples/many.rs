//! Benchmark: a forecast of 10,000 schedules. `cargo run --release -p belfry-forecast --example many`
//!
//! Half of the schedules fire once a day, most others once an hour, some every 15 minutes, and a hundred every minute:
//! 331,400 firings in 24 hours. The example runs with 20 workers, which have enough capacity, and with 4, which do not.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark measures time and prints the result"
)]

use std::error::Error;
use std::time::Instant;

use forecast::{Plan, QualifiedName, RunHistory, Schedule, Worker, forecast};
use model::timing::{Cron, Rule, Timing};
use model::worker::Capacity;
use model::{Bytes, Duration, JobSpec, Millicores, ScheduleSpec, Timestamp};

const SCHEDULES: u64 = 10_000;

/// Returns the cron expression of a schedule and the run time of its jobs, in seconds.
fn rule(n: u64) -> (String, u64) {
    let (minute, hour) = (n % 60, n / 60 % 24);
    match n {
        0..100 => ("* * * * *".into(), 2),
        100..1_000 => (format!("{}-59/15 * * * *", n % 15), 10),
        1_000..5_000 => (format!("{minute} * * * *"), 20),
        _ => (format!("{minute} {hour} * * *"), 300),
    }
}

fn plan(workers: u32) -> Result<Plan, Box<dyn Error>> {
    let from: Timestamp = "2026-11-21T00:00:00Z".parse()?;
    let mut plan = Plan::new(from, from + Duration::from_hours(24));
    for n in 0..SCHEDULES {
        let (expression, seconds) = rule(n);
        let timing = Timing { rules: vec![Rule::Cron(Cron::new(&expression))], ..Timing::default() };
        let mut job = JobSpec::command(["true"]);
        job.resources.cpu = Some(Millicores(500));
        let spec = ScheduleSpec::new(format!("s{n}"), timing, job);
        let name = QualifiedName::new(spec.namespace.as_str(), spec.name.as_str());
        plan.history.schedules.insert(name, RunHistory::steady(Duration::from_secs(seconds)));
        plan.schedules.push(Schedule::from(spec));
    }
    plan.workers = (0..workers)
        .map(|n| {
            let capacity = Capacity {
                cpu: Millicores(16_000),
                memory: Bytes(64 << 30),
                slots: 100,
                ..Capacity::default()
            };
            Worker::new(format!("w{n}"), capacity)
        })
        .collect();
    Ok(plan)
}

fn main() -> Result<(), Box<dyn Error>> {
    for workers in [20, 4] {
        let plan = plan(workers)?;
        let begin = Instant::now();
        let answer = forecast(&plan, &mut |_| {})?;
        let summary = &answer.summary;
        println!("{workers} workers: {:.2} s; {summary:?}", begin.elapsed().as_secs_f64());
    }
    Ok(())
}

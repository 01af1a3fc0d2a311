//! Arguments of `forecast`, and the parsers of workers (`cpu=8,memory=32GiB`), factors and time zones.

use std::path::PathBuf;

use clap::Args;
use forecast::Worker;
use jiff::tz::TimeZone;
use model::worker::Capacity;
use model::{Bytes, Duration, Millicores, Timestamp};

use super::examples;
use super::spec::instant;

/// `belfry forecast`
#[derive(Debug, Args)]
#[command(before_help = examples! {
    "belfry forecast                                the next 24 hours"
    "belfry forecast --for 7d --svg week.svg        a week, with a chart"
    "belfry forecast -f new-schedules/              with these files applied"
    "belfry forecast --without-worker build-3       without one worker"
    "belfry forecast --workers 20 --slower 1.5      more workers, longer runs"
    "belfry forecast --offline -f plan.yaml --add-worker cpu=8,memory=32GiB"
})]
pub(crate) struct ForecastArgs {
    /// Start of the range: 2026-11-21T08:00:00Z, 2026-11-21T08:00 (local), 08:00 (next) [default: now]
    #[arg(long, value_name = "TIME", value_parser = instant, help_heading = "Range")]
    pub(crate) from: Option<Timestamp>,
    /// End of the range, exclusive, in the same formats [default: 24h after the start]
    #[arg(long, value_name = "TIME", value_parser = instant, conflicts_with = "length", help_heading = "Range")]
    pub(crate) to: Option<Timestamp>,
    /// Length of the range, instead of its end: 12h, 7d [default: 24h]
    #[arg(id = "length", long = "for", value_name = "DURATION", help_heading = "Range")]
    pub(crate) length: Option<Duration>,
    /// Time zone of the output, for example Asia/Shanghai [default: the zone of this machine]
    #[arg(long, value_name = "ZONE", value_parser = zone, help_heading = "Range")]
    pub(crate) time_zone: Option<TimeZone>,

    /// File or folder with definitions to include as if they were applied, `-` for standard input; repeatable
    #[arg(short, long = "file", value_name = "FILE", help_heading = "What if")]
    pub(crate) files: Vec<PathBuf>,
    /// Use only the definitions in the files, without a server
    #[arg(long, requires = "files", help_heading = "What if")]
    pub(crate) offline: bool,
    /// Number of workers: the first N are kept, or copies of them are added
    #[arg(long, value_name = "N", help_heading = "What if")]
    pub(crate) workers: Option<usize>,
    /// Additional worker: cpu and memory, and optionally slots, custom resources, a name and labels
    /// (`KEY:VALUE`), for example cpu=8,memory=32GiB,slots=50,gpu=2,name=big,zone:eu; repeatable
    #[arg(long, value_name = "WORKER", value_parser = worker, help_heading = "What if")]
    pub(crate) add_worker: Vec<Worker>,
    /// Worker whose resources are multiplied by a factor, for example build-1=2x; repeatable
    #[arg(long, value_name = "NAME=FACTOR", value_parser = scale, help_heading = "What if")]
    pub(crate) scale_worker: Vec<Scale>,
    /// Name of a worker to remove; repeatable
    #[arg(long, value_name = "NAME", help_heading = "What if")]
    pub(crate) without_worker: Vec<String>,
    /// Factor by which all run times are multiplied, for example 1.5
    #[arg(long, value_name = "FACTOR", value_parser = factor, help_heading = "What if")]
    pub(crate) slower: Option<f64>,

    /// Start delay after which a run counts as late [default: the expected start delay of its schedule, usually 1m]
    #[arg(long, value_name = "DURATION", help_heading = "Output")]
    pub(crate) late: Option<Duration>,
    /// Waiting time after which a queue counts as overloaded
    #[arg(long, value_name = "DURATION", default_value = "1m", help_heading = "Output")]
    pub(crate) patience: Duration,
    /// Assumed run time of jobs that have no history
    #[arg(long, value_name = "DURATION", default_value = "1m", help_heading = "Simulation")]
    pub(crate) run_time: Duration,
    /// Seed of the random numbers; the same seed gives the same forecast
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Simulation")]
    pub(crate) seed: u64,
    /// Maximum number of simulated runs; the forecast ends early at this number
    #[arg(long, value_name = "N", default_value_t = 5_000_000, help_heading = "Simulation")]
    pub(crate) max_runs: u64,
    /// File for a chart in SVG format; `-` writes the chart to standard output, instead of the tables
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) svg: Option<PathBuf>,
}

/// A worker whose resources are multiplied by a factor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scale {
    pub(crate) name: String,
    pub(crate) factor: f64,
}

fn zone(text: &str) -> Result<TimeZone, String> {
    TimeZone::get(text).map_err(|_| "expected an IANA time zone such as Asia/Shanghai or UTC".to_owned())
}

fn factor(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix(['x', '×']).unwrap_or(text).parse::<f64>();
    let number = number.ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0, such as 2 or 1.5x".to_owned())
}

fn scale(text: &str) -> Result<Scale, String> {
    // The name may contain `=`, so the last one separates.
    let (name, by) = text.rsplit_once('=').ok_or("expected NAME=FACTOR, such as build-1=2x")?;
    Ok(Scale { name: name.to_owned(), factor: factor(by)? })
}

/// Parses `cpu=8,memory=32GiB,slots=50,gpu=2,name=big,zone:eu`.
fn worker(text: &str) -> Result<Worker, String> {
    let capacity = Capacity { slots: 100, ..Capacity::default() };
    let mut worker = Worker::new("new", capacity);
    for part in text.split(',').filter(|part| !part.is_empty()) {
        if let Some((label, value)) = part.split_once(':') {
            worker.labels.insert(label.to_owned(), value.to_owned());
            continue;
        }
        let (key, value) = part.split_once('=').ok_or_else(|| {
            format!(
                "`{part}`: expected KEY=VALUE (cpu, memory, slots, name, or a custom resource) or LABEL:VALUE"
            )
        })?;
        let wrong = |detail: String| format!("{key}: {detail}");
        let number = || value.parse::<u64>().map_err(|error| wrong(error.to_string()));
        match key {
            "cpu" => worker.capacity.cpu = value.parse::<Millicores>().map_err(|e| wrong(e.to_string()))?,
            "memory" => worker.capacity.memory = value.parse::<Bytes>().map_err(|e| wrong(e.to_string()))?,
            "slots" => {
                worker.capacity.slots = number()?.try_into().map_err(|_| wrong("is too large".into()))?;
            }
            "name" => value.clone_into(&mut worker.name),
            _ => {
                worker.capacity.custom.insert(key.to_owned(), number()?);
            }
        }
    }
    if worker.capacity.cpu == Millicores(0) || worker.capacity.memory == Bytes(0) {
        return Err("expected both `cpu` and `memory`, such as cpu=8,memory=32GiB".to_owned());
    }
    Ok(worker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_told_by_what_it_has() {
        let read = worker("cpu=1500m,memory=2GiB,gpu=2,name=big,zone:eu").unwrap();
        assert_eq!(
            (read.name.as_str(), read.capacity.cpu, read.capacity.slots),
            ("big", Millicores(1_500), 100)
        );
        assert_eq!((read.capacity.custom["gpu"], read.labels["zone"].as_str()), (2, "eu"));
        for wrong in ["", "cpu=8", "cpu=8,memory=lots", "cpu=8,memory=1GiB,fast", "cpu=1,memory=1GiB,slots=x"]
        {
            assert!(worker(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_factor_may_have_its_sign_behind_it() {
        assert_eq!(scale("a=b=2x"), Ok(Scale { name: "a=b".into(), factor: 2.0 }));
        assert_eq!(factor("1.5"), Ok(1.5));
        for wrong in ["0", "-1", "x", "inf", ""] {
            assert!(factor(wrong).is_err(), "{wrong}");
        }
    }
}

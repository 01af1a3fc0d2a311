//! Results of a benchmark as a file: `docs/benchmarks/NAME.json`.
//!
//! The file also contains the machine, the commit and all rounds, without which a figure means little. The book's
//! page is generated from these files, so that no figure is typed by hand.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::report::Row;

/// The machine on which figures were measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    /// Memory in GiB.
    pub(crate) memory: u64,
    /// Kernel version.
    pub(crate) system: String,
}

impl Machine {
    pub(crate) fn this() -> anyhow::Result<Self> {
        let line = |file: &str, key: &str| -> anyhow::Result<String> {
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
            let found = text.lines().find(|line| line.starts_with(key)).and_then(|l| l.split(':').nth(1));
            Ok(found.unwrap_or("unknown").trim().to_owned())
        };
        let memory = line("/proc/meminfo", "MemTotal")?;
        let kib: u64 = memory.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let system = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            processor: line("/proc/cpuinfo", "model name")?,
            memory: (kib + (1 << 19)) >> 20,
            system: format!("Linux {}", system.trim()),
        })
    }
}

/// Results of one benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BenchmarkResult {
    pub(crate) name: String,
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) machine: Machine,
    /// Command that repeats the measurement.
    pub(crate) again: String,
    pub(crate) rows: Vec<Row>,
}

impl BenchmarkResult {
    pub(crate) fn new(name: String, again: String, rows: Vec<Row>) -> anyhow::Result<Self> {
        let (commit, date) =
            (first_line_of("git", &["rev-parse", "--short", "HEAD"]), first_line_of("date", &["-u", "+%F"]));
        Ok(Self { name, commit, date, machine: Machine::this()?, again, rows })
    }

    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{}.json", self.name));
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Returns the first line that a program prints; `unknown` if it fails.
fn first_line_of(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).current_dir(harness::repository()).output();
    let said = done.ok().filter(|done| done.status.success());
    said.and_then(|done| String::from_utf8(done.stdout).ok())
        .and_then(|text| text.lines().next().map(str::to_owned))
        .unwrap_or_else(|| "unknown".into())
}

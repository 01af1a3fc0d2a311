//! What tasks really did, recorded by the tasks themselves.
//!
//! A task appends one line at its start, one regularly while it runs, and one at its end: `start|beat|end|fail JOB
//! EXECUTION FENCE PID TIME`. The time is the machine's wall clock, which no test changes. Each line is one short
//! write to a file opened for appending, so lines never mix. Belfry does not know the file: a task that runs without
//! Belfry's knowledge is visible here and nowhere else.
//!
//! [`Witness::violations`] compares the lines with the final data of the server.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use model::api::{Execution, Job};
use model::spec::Delivery;
use model::{ExecutionStatus, JobSpec, JobStatus};

/// Maximum slew of the wall clock during a test, in seconds.
const GRAIN: f64 = 0.001;

/// A file to which tasks append lines.
#[derive(Debug, Clone)]
pub struct Witness {
    path: PathBuf,
}

/// A line of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Kind: `start`, `beat`, `end` or `fail`.
    pub kind: String,
    /// Job id.
    pub job: String,
    /// Execution id.
    pub execution: String,
    /// Its fence.
    pub fence: u64,
    /// Pid of the task.
    pub pid: i32,
    /// Unix time in seconds.
    pub at: f64,
}

impl Line {
    fn parse(line: &str) -> Self {
        // A task that is killed while it writes may leave a partial line, which the line of another task follows.
        let begins = ["start ", "beat ", "end ", "fail "].iter().filter_map(|kind| line.rfind(kind)).max();
        let fields: Vec<_> = line[begins.unwrap_or(0)..].split(' ').collect();
        let [kind, job, execution, fence, pid, at] = fields[..] else { panic!("invalid line `{line}`") };
        Self {
            kind: kind.to_owned(),
            job: job.to_owned(),
            execution: execution.to_owned(),
            fence: fence.parse().expect("a fence is a number"),
            pid: pid.parse().expect("a pid is a number"),
            at: at.parse().expect("a time is a number"),
        }
    }
}

/// One execution, according to its task.
#[derive(Debug, Clone, PartialEq)]
struct Run {
    execution: String,
    fence: u64,
    first: f64,
    last: f64,
    ended: bool,
    starts: usize,
}

/// The spec of a job, and its final data on the server.
#[derive(Debug, Clone)]
pub struct JobResult {
    /// Delivery level of the job.
    pub delivery: Delivery,
    /// Final data of the job; `None` if the server does not know it.
    pub job: Option<Job>,
    /// Executions of the job on the server.
    pub executions: Vec<Execution>,
}

impl Witness {
    pub(crate) fn create(path: &Path) -> Self {
        File::options().create(true).append(true).open(path).expect("cannot create the witness file");
        fs::set_permissions(path, Permissions::from_mode(0o666)).expect("cannot set the permissions");
        Self { path: path.into() }
    }

    /// Returns a job that runs for about `tenths` tenths of a second and records lines.
    pub fn job(&self, tenths: u32) -> JobSpec {
        self.job_that(&format!("i=0; while [ $i -lt {tenths} ]; do pause 0.1; tell beat; i=$((i+1)); done"))
    }

    /// Returns a job that records its start, runs the shell script `work`, and records its end. The script may call `tell
    /// beat`, and `pause SECONDS`, which starts no process as `sleep` does: the tasks of a storm pause a hundred times a
    /// second.
    pub fn job_that(&self, work: &str) -> JobSpec {
        let script = format!(
            "LC_ALL=C\ntell() {{ \
             echo \"$1 $BELFRY_JOB_ID $BELFRY_EXECUTION_ID $BELFRY_FENCE $$ $EPOCHREALTIME\" >> '{}'; }}\n\
             tell start\nexec {{never}}<> <(:)\npause() {{ read -rt $1 -u $never; }}\n{work}\ntell end\n",
            self.path.display()
        );
        JobSpec::command(["bash", "-c", &script])
    }

    /// Returns the lines so far, in the order of their writing.
    ///
    /// # Panics
    /// If the file contains a malformed line.
    pub fn lines(&self) -> Vec<Line> {
        self.text().lines().map(Line::parse).collect()
    }

    /// Returns the number of lines of this kind.
    pub fn count(&self, kind: &str) -> usize {
        self.text().lines().filter(|l| l.split(' ').next() == Some(kind)).count()
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).expect("cannot read the witness file")
    }

    /// Returns descriptions of all violations; empty if all guarantees were kept.
    ///
    /// # Panics
    /// If the file contains a malformed line.
    pub fn violations(&self, fates: &BTreeMap<String, JobResult>) -> Vec<String> {
        violations(&self.text(), fates)
    }
}

fn violations(text: &str, fates: &BTreeMap<String, JobResult>) -> Vec<String> {
    let mut runs = runs(text);
    let mut found = Vec::new();
    for (id, fate) in fates {
        let mut runs = runs.remove(id).unwrap_or_default();
        runs.sort_by(|a, b| a.first.total_cmp(&b.first));
        found.extend(faults(fate, &runs).into_iter().map(|fault| format!("{id}: {fault}")));
    }
    found.extend(runs.into_keys().map(|id| format!("{id}: ran, but was never requested")));
    found
}

/// Returns the executions of each job, by job id.
fn runs(text: &str) -> BTreeMap<String, Vec<Run>> {
    let mut jobs: BTreeMap<String, Vec<Run>> = BTreeMap::new();
    for Line { kind, job, execution, fence, at, .. } in text.lines().map(Line::parse) {
        let runs = jobs.entry(job).or_default();
        let index = runs.iter().position(|r| r.execution == execution).unwrap_or_else(|| {
            runs.push(Run { execution, fence, first: at, last: at, ended: false, starts: 0 });
            runs.len() - 1
        });
        let run = &mut runs[index];
        run.last = at.max(run.last);
        run.ended |= kind == "end";
        run.starts += usize::from(kind == "start");
    }
    jobs
}

/// Returns the violations of one job; `runs` are sorted by start.
fn faults(fate: &JobResult, runs: &[Run]) -> Vec<String> {
    let Some(job) = &fate.job else { return vec!["was accepted, but is lost".into()] };
    let mut found = Vec::new();
    let mut fault = |yes: bool, what: String| {
        if yes {
            found.push(what);
        }
    };
    fault(!job.status.is_final(), format!("never ended: {}", job.status));
    for run in runs {
        fault(run.starts != 1, format!("{} started {} times", run.execution, run.starts));
    }
    for pair in runs.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        let late = before.last - after.first;
        fault(late > GRAIN, format!("{} overlapped {late:.2} s with {}", before.execution, after.execution));
        fault(before.fence >= after.fence, format!("fence {} follows fence {}", after.fence, before.fence));
    }
    if fate.delivery == Delivery::AtMostOnce {
        fault(runs.len() > 1, format!("is at_most_once and started {} times", runs.len()));
    }
    let accepted: Vec<_> =
        fate.executions.iter().filter(|e| e.status == ExecutionStatus::Succeeded).collect();
    let wanted = usize::from(job.status == JobStatus::Succeeded);
    fault(accepted.len() != wanted, format!("is {} with {} accepted results", job.status, accepted.len()));
    for execution in accepted {
        let told = runs.iter().find(|r| r.execution == execution.id.to_string());
        fault(
            !told.is_some_and(|r| r.ended),
            format!("{} succeeded, but its task never ended", execution.id),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate(delivery: Delivery, status: &str, executions: &[(&str, &str)]) -> JobResult {
        let time = "2026-11-21T08:00:00Z";
        let job = serde_json::json!({
            "id": format!("job_{}", "0".repeat(26)), "name": "j", "namespace": "default", "queue": "default",
            "priority": 50, "status": status, "version": 1, "created_at": time, "due_at": time,
            "updated_at": time, "executions": executions.len(), "run_failures": 0, "start_failures": 0,
        });
        let executions = executions.iter().enumerate().map(|(i, (id, status))| {
            let row = serde_json::json!({
                "id": id, "job_id": format!("job_{}", "0".repeat(26)), "job_name": "j", "namespace": "default",
                "number": i + 1, "fence": i + 1, "worker_id": format!("wkr_{}", "0".repeat(26)),
                "status": status, "assigned_at": time,
            });
            serde_json::from_value(row).unwrap()
        });
        JobResult {
            delivery,
            executions: executions.collect(),
            job: Some(serde_json::from_value(job).unwrap()),
        }
    }

    fn exe(n: u32) -> String {
        format!("exe_{n:026}")
    }

    fn found(text: &str, fate: JobResult) -> String {
        let text = text.replace("e1", &exe(1)).replace("e2", &exe(2));
        violations(&text, &BTreeMap::from([("j".to_owned(), fate)]))
            .join("\n")
            .replace(&exe(1), "e1")
            .replace(&exe(2), "e2")
    }

    #[test]
    fn a_line_after_a_partial_line_is_read() {
        let line = Line::parse("start job_0beat job_1 exe_1 7 30403 1.5");
        assert_eq!((line.kind.as_str(), line.job.as_str(), line.fence), ("beat", "job_1", 7));
    }

    #[test]
    fn a_clean_history_has_no_violation() {
        let text = "start j e1 1 10 1.00\nbeat j e1 1 10 1.10\nstart j e2 2 11 1.10\nend j e2 2 11 1.30\n";
        let fate = fate(Delivery::AtLeastOnce, "succeeded", &[(&exe(1), "lost"), (&exe(2), "succeeded")]);
        assert_eq!(found(text, fate), "");
    }

    #[test]
    fn two_executions_at_the_same_time_are_found() {
        let text = "start j e1 1 10 1.00\nstart j e2 2 11 1.10\nend j e1 1 10 1.50\nend j e2 2 11 1.30\n";
        let fate = fate(Delivery::AtLeastOnce, "succeeded", &[(&exe(1), "lost"), (&exe(2), "succeeded")]);
        assert_eq!(found(text, fate), "j: e1 overlapped 0.40 s with e2");
    }

    #[test]
    fn a_second_start_of_at_most_once_and_of_one_execution_are_found() {
        let text = "start j e1 1 10 1.00\nstart j e2 2 11 1.10\nstart j e2 2 11 1.20\n";
        let fate = fate(Delivery::AtMostOnce, "failed", &[(&exe(1), "lost"), (&exe(2), "failed")]);
        assert_eq!(found(text, fate), "j: e2 started 2 times\nj: is at_most_once and started 2 times");
    }

    #[test]
    fn lost_unrequested_unfinished_and_doubly_accepted_jobs_are_found() {
        let lost = JobResult { delivery: Delivery::AtLeastOnce, job: None, executions: vec![] };
        assert_eq!(found("", lost), "j: was accepted, but is lost");
        assert_eq!(
            violations("start x e 1 10 1.00\n", &BTreeMap::new()),
            ["x: ran, but was never requested"]
        );
        assert_eq!(found("", fate(Delivery::AtLeastOnce, "waiting", &[])), "j: never ended: waiting");
        let text = "start j e1 1 10 1.00\nend j e1 1 10 1.10\nstart j e2 1 11 1.20\n";
        let twice =
            fate(Delivery::ExactlyOnce, "succeeded", &[(&exe(1), "succeeded"), (&exe(2), "succeeded")]);
        assert_eq!(
            found(text, twice),
            "j: fence 1 follows fence 1\nj: is succeeded with 2 accepted results\nj: e2 succeeded, but its task never ended"
        );
    }
}

//! Converts values of the core to protocol messages and journal records, and back.

use std::collections::HashMap;

use model::{ExecutionId, Fence, WorkerId};
use proto::v1;
use proto::v1::finished::How;
use proto::v1::report::Body;
use supervisor::{Entry, Held, Holding, Payloads, Report, StartFailure, State};

use super::journal;
use super::task::StartRequest;
use crate::clock::unix_millis;
use crate::link::Stored;

/// Data that this shell attaches to executions.
#[derive(Debug)]
pub(crate) enum WorkerPayloads {}

impl Payloads for WorkerPayloads {
    type StartRequest = StartRequest;
    type Assignment = v1::Assignment;
    type End = v1::Finished;
    type Stored = Stored;

    fn interrupted() -> v1::Finished {
        v1::Finished {
            how: How::Interrupted.into(),
            detail: "the worker's supervisor or machine went down".to_owned(),
            finished_at_unix_ms: unix_millis(),
            ..v1::Finished::default()
        }
    }

    fn stop_while_storing(end: &mut v1::Finished) {
        end.how = How::Stopped.into();
        "stopped while the outputs were being stored".clone_into(&mut end.detail);
    }

    fn add_outputs(end: &mut v1::Finished, stored: Stored) {
        if !stored.error.is_empty() {
            end.error = stored.error;
            end.detail = stored.detail;
        }
        if let Some(files) = &mut end.files {
            files.outputs = stored.outputs;
        }
    }
}

pub(super) fn start_failed(code: &str, detail: impl Into<String>) -> StartFailure {
    StartFailure { code: code.to_owned(), detail: detail.into() }
}

/// Converts a held execution to a message.
pub(crate) fn held(Holding { execution, fence, job, is_active }: Holding) -> v1::JournaledExecution {
    v1::JournaledExecution {
        execution_id: execution.to_string(),
        fence: fence.0,
        running: is_active,
        job_id: job.map_or_else(String::new, |job| job.to_string()),
    }
}

/// Converts a report to a message. `started` returns the details of a running execution.
pub(crate) fn message(
    execution: ExecutionId,
    fence: Fence,
    report: Report<WorkerPayloads>,
    started: impl FnOnce() -> v1::Started,
) -> v1::Report {
    let body = match report {
        Report::Started => Body::Started(started()),
        Report::Refused { reason, detail } => Body::Refused(v1::Refused { reason, detail }),
        Report::StartFailed(StartFailure { code, detail }) => {
            Body::StartFailed(v1::StartFailed { code, detail })
        }
        Report::Ended(finished) => Body::Finished(*finished),
    };
    v1::Report { execution_id: execution.to_string(), fence: fence.0, body: Some(body) }
}

/// Converts a message to the report of an end; `None` if the message reports a start.
fn report(body: Option<Body>) -> Option<Report<WorkerPayloads>> {
    Some(match body? {
        Body::Started(_) => return None,
        Body::Refused(v1::Refused { reason, detail }) => Report::Refused { reason, detail },
        Body::StartFailed(v1::StartFailed { code, detail }) => {
            Report::StartFailed(StartFailure { code, detail })
        }
        Body::Finished(finished) => Report::Ended(Box::new(finished)),
    })
}

/// Where an execution was started: boot of the machine, and identity of the worker folder.
#[derive(Debug, Clone)]
pub(crate) struct StartLocation {
    pub(crate) boot_id: String,
    pub(crate) folder_id: String,
}

/// Converts an entry of the core to a journal record.
pub(crate) fn record(entry: Entry<WorkerPayloads>, site: &StartLocation) -> journal::Body {
    match entry {
        Entry::Started { execution, fence } => {
            let StartLocation { boot_id, folder_id } = site.clone();
            let execution_id = execution.to_string();
            journal::Body::Started(journal::Started { execution_id, fence: fence.0, boot_id, folder_id })
        }
        Entry::OutputsPending { assignment, end, .. } => {
            journal::Body::OutputsPending(journal::Ran { assignment: Some(assignment), finished: Some(end) })
        }
        Entry::Outcome { execution, fence, report } => {
            journal::Body::Outcome(message(execution, fence, report, v1::Started::default))
        }
        Entry::Forgotten { execution } => {
            journal::Body::Forgotten(journal::Acknowledged { execution_id: execution.to_string() })
        }
    }
}

/// Converts the state of a journal to the state of the core.
pub(crate) fn state(said: journal::State) -> State<WorkerPayloads> {
    let held = said.held.into_iter().filter_map(|(id, held)| {
        let held = match held {
            journal::Held::Started { fence, .. } => Held::Started { fence },
            journal::Held::OutputsPending { assignment, finished } => Held::OutputsPending {
                fence: Fence(assignment.fence),
                job: assignment.job_id.parse().ok(),
                assignment,
                end: finished,
            },
            journal::Held::Ended { report: said } => {
                Held::Ended { fence: Fence(said.fence), report: report(said.body)? }
            }
        };
        Some((id, held))
    });
    let mut held: Vec<_> = held.collect();
    held.sort_unstable_by_key(|(id, _)| *id);
    State { held, forgotten: said.forgotten }
}

/// Converts the state of the core to that of a compacted journal.
pub(crate) fn journal_state(
    worker: WorkerId,
    state: State<WorkerPayloads>,
    site: &StartLocation,
) -> journal::State {
    let held = state.held.into_iter().map(|(id, held)| {
        let held = match held {
            Held::Started { fence } => {
                let StartLocation { boot_id, folder_id } = site.clone();
                journal::Held::Started { fence, boot_id, folder_id }
            }
            Held::OutputsPending { assignment, end, .. } => {
                journal::Held::OutputsPending { assignment, finished: end }
            }
            Held::Ended { fence, report } => {
                journal::Held::Ended { report: message(id, fence, report, v1::Started::default) }
            }
        };
        (id, held)
    });
    journal::State { worker, held: held.collect::<HashMap<_, _>>(), forgotten: state.forgotten }
}

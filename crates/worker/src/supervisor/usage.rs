//! Measures running executions at intervals, for the server and for the report of their end.
//!
//! ```text
//! alarm ─> targets ─> thread: process::usage ─> taken by the loop ─> TaskUsage of each task, message to the agent
//! ```
//!
//! A thread reads the files, because 1,000 tasks take about 50 ms. The agent passes the newest measurements to the server
//! with its next heartbeat; without an agent they are only added up here, so the report of an end covers the whole run.
//!
//! # Cost
//! The next measurement follows after [`INTERVAL`], or after 100 times the duration of the last one. So measurements take at
//! most 1 % of a core, unless one takes longer than 300 ms.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread;

use model::ExecutionId;
use proto::v1;
use rustix::event::{EventfdFlags, eventfd};
use supervisor::BootMillis;

use super::Supervisor;
use super::poller::Alarm;
use super::task::Task;
use crate::clock::boot_millis;
use crate::link::Answer;
use crate::process::cgroup::Group;
use crate::process::usage::{Measurement, Target, measure};

/// Minimum interval between measurements, in milliseconds.
const INTERVAL: BootMillis = 5_000;
/// Maximum interval, in milliseconds: a server drops measurements after a minute, and a duration may include the time in which
/// the machine was suspended.
const INTERVAL_MAX: BootMillis = 30_000;
/// Minimum ratio of the interval to the duration of a measurement.
const INTERVAL_PER_DURATION: BootMillis = 100;

/// The loop's handle of the measuring thread, which has at most one request at a time.
#[derive(Debug)]
pub(super) struct Meter {
    targets: mpsc::Sender<Vec<Target>>,
    measured: mpsc::Receiver<Measured>,
    wake: Arc<OwnedFd>,
    is_busy: bool,
}

/// Result of one round of measurements.
#[derive(Debug)]
struct Measured {
    began: BootMillis,
    ended: BootMillis,
    executions: Vec<(ExecutionId, Measurement)>,
}

impl Meter {
    pub(super) fn start() -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (targets, inbox) = mpsc::channel::<Vec<Target>>();
        let (outbox, measured) = mpsc::channel();
        let bell = Arc::clone(&wake);
        thread::Builder::new().name("usage".into()).spawn(move || {
            for targets in inbox {
                let began = boot_millis();
                let executions = measure(&targets);
                if outbox.send(Measured { began, ended: boot_millis(), executions }).is_err() {
                    return;
                }
                // Fails only after 2^64 unread rounds.
                rustix::io::write(&*bell, &1u64.to_ne_bytes()).ok();
            }
        })?;
        Ok(Self { targets, measured, wake, is_busy: false })
    }

    /// Becomes readable when a round is complete.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn request(&mut self, targets: Vec<Target>) {
        self.is_busy = true;
        // The thread runs until the process exits, so the channel is open.
        self.targets.send(targets).ok();
    }

    fn take(&mut self) -> Option<Measured> {
        rustix::io::read(&*self.wake, &mut [0; 8]).ok();
        let measured = self.measured.try_recv().ok()?;
        self.is_busy = false;
        Some(measured)
    }
}

impl Supervisor {
    /// Schedules the next measurement, if none is scheduled or running.
    pub(super) fn schedule_measurement(&mut self) {
        self.schedule_measurement_in(INTERVAL);
    }

    fn schedule_measurement_in(&mut self, pause: BootMillis) {
        if !self.meter.is_busy && !std::mem::replace(&mut self.is_measurement_set, true) {
            self.poller.alarm(boot_millis() + pause, Alarm::Usage);
        }
    }

    /// Starts to measure all running tasks.
    pub(super) fn measure_tasks(&mut self) {
        self.is_measurement_set = false;
        let target = |(id, task): (&ExecutionId, &Task)| {
            // The control group of a shim does not have the processes that another program starts.
            let group = task.group.as_ref().filter(|_| !task.order.is_foreign()).map(Group::paths);
            task.is_alive().then(|| Target { root: task.root(*id), group })
        };
        let targets: Vec<_> = self.tasks.iter().filter_map(target).collect();
        if !targets.is_empty() {
            self.meter.request(targets);
        } else if self.has_sent_usage {
            self.has_sent_usage = false;
            self.send_to_agent(Answer::Usage(v1::UsageBatch::default()));
        }
    }

    /// Adds the measurements to their tasks, and sends them to the agent.
    pub(super) fn take_measurements(&mut self) {
        let Some(Measured { began, ended, executions }) = self.meter.take() else { return };
        let use_now = executions.into_iter().filter_map(|(id, measurement)| {
            let task = self.tasks.get_mut(&id).filter(|task| task.is_alive())?;
            let usage = task.usage.add(task.started, ended, measurement)?;
            let job_id = task.order.assignment.job_id.clone();
            Some(v1::ExecutionUsage { execution_id: id.to_string(), job_id, ..usage })
        });
        let batch = v1::UsageBatch { executions: use_now.collect() };
        // An agent that does not read gets the next one.
        if self.agent.as_ref().is_some_and(|agent| agent.synced && agent.has_room()) {
            self.has_sent_usage = !batch.executions.is_empty();
            self.send_to_agent(Answer::Usage(batch));
        }
        let duration = ended.saturating_sub(began);
        self.schedule_measurement_in((duration * INTERVAL_PER_DURATION).clamp(INTERVAL, INTERVAL_MAX));
    }
}

//! The modelled supervisor: its journal, its lease, and tasks that only take time.
//!
//! # Always true
//! - A task starts once its start is on the disk, and under a lease that holds.
//! - An outcome is reported once it is on the disk, and kept until it is acknowledged.
//! - Tasks that may run elsewhere stand still within [`FUSE_MILLIS`] of the end of the lease.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ::model::spec::Delivery;
use ::model::{ExecutionId, Fence, JobId, JobSpec, WorkerId};
use proto::v1::finished::How;
use proto::v1::{self, report::Body};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use super::disk::Disk;
use super::wire::{read, write};
use super::{Plan, Step, Task, World};
use crate::link::{Answer, Holdings, Reports, Request, SupervisorGreeting};

/// The version of the link that is modelled: pauses and checkpoints are not.
const MODELLED: u32 = 1;
/// How late a fuse may act.
const FUSE_MILLIS: u64 = 40;
/// How long a line of the journal takes to be on the disk.
const WRITE_MILLIS: u64 = 20;
/// Frozen for longer, a task is killed.
const ORPHAN_MILLIS: u64 = 300_000;

/// How far an execution is. Times are the world's, in milliseconds.
#[derive(Debug)]
enum Phase {
    /// It waits for a lease.
    Waiting,
    /// Its start is on the disk at this time, and then it waits for a lease.
    Starting { at: u64 },
    /// It runs, or is frozen.
    Running(Running),
    /// It has ended, which is on the disk at this time.
    Ending { at: u64, report: v1::Report },
    /// It has ended, and that is on the disk.
    Ended { report: v1::Report },
}

#[derive(Debug)]
struct Running {
    /// What is left of it when it was looked at last.
    left: u64,
    since: u64,
    frozen: bool,
    exit: i32,
    /// It was told to stop, and is killed at this time.
    stop_by: Option<u64>,
}

#[derive(Debug)]
struct Execution {
    job: JobId,
    fence: Fence,
    /// Unknown of what was started before a power cut; it never runs again.
    spec: Option<Arc<JobSpec>>,
    discard: bool,
    phase: Phase,
}

impl Execution {
    fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Starting { .. } | Phase::Running(_))
    }

    /// What the server is to hear of it.
    fn report(&self, id: ExecutionId) -> Option<v1::Report> {
        match &self.phase {
            Phase::Running(_) => {
                let started = v1::Started { at_unix_ms: 0, pid: 1 };
                Some(report(id, self.fence, Body::Started(started)))
            }
            Phase::Ended { report } => Some(report.clone()),
            _ => None,
        }
    }

    /// When something happens to it by itself.
    fn next(&self, lease_until: u64) -> Option<u64> {
        match &self.phase {
            Phase::Starting { at } if lease_until > *at => Some(*at),
            Phase::Running(task) if task.frozen => Some(task.since + ORPHAN_MILLIS),
            Phase::Running(task) => {
                let end = task.since + task.left;
                Some(task.stop_by.map_or(end, |by| by.min(end)))
            }
            Phase::Ending { at, .. } => Some(*at),
            _ => None,
        }
    }
}

/// A connected agent.
struct Agent {
    number: u64,
    to_agent: mpsc::UnboundedSender<Answer>,
    synced: bool,
}

/// The supervisor.
pub(super) struct Supervisor {
    world: Arc<dyn World>,
    id: WorkerId,
    slots: usize,
    disk: Disk,
    executions: BTreeMap<ExecutionId, Execution>,
    lease_until: u64,
    /// When the fuse acts, unless the lease is renewed before.
    fuse_at: Option<u64>,
    agents: u64,
    agent: Option<Agent>,
    /// Reports that are to be sent.
    fresh: Vec<v1::Report>,
}

/// A power cut: tasks are gone with the machine.
impl Drop for Supervisor {
    fn drop(&mut self) {
        for (&id, execution) in &self.executions {
            if matches!(execution.phase, Phase::Running(_)) {
                self.world.saw(id, Step::Killed);
            }
        }
    }
}

impl Supervisor {
    /// A supervisor that starts over what its disk says.
    pub(super) fn new(world: Arc<dyn World>, id: WorkerId, slots: usize, disk: Disk) -> Self {
        let mut this = Self {
            world,
            id,
            slots,
            disk: disk.clone(),
            executions: BTreeMap::new(),
            lease_until: 0,
            fuse_at: None,
            agents: 0,
            agent: None,
            fresh: Vec::new(),
        };
        let journal = disk.journal();
        for (&id, &fence) in &journal.started {
            let (phase, ended) = match journal.ended.get(&id) {
                Some(report) => (Phase::Ended { report: report.clone() }, true),
                None => (Phase::Waiting, false),
            };
            let (job, spec) = (JobId::from_bits(0), None);
            this.executions.insert(id, Execution { job, fence, spec, discard: false, phase });
            if !ended {
                this.conclude(id, finished(id, fence, How::Interrupted, None));
            }
        }
        drop(journal);
        this
    }

    pub(super) async fn run(mut self, mut accepted: mpsc::UnboundedReceiver<DuplexStream>) -> Infallible {
        let (requests, mut heard) = mpsc::unbounded_channel();
        loop {
            let pause = self.next().map(|at| Duration::from_millis(at.saturating_sub(self.world.millis())));
            tokio::select! {
                biased;
                Some((number, request)) = heard.recv() => self.hear(number, request),
                Some(stream) = accepted.recv() => self.accept(stream, &requests),
                () = pause_for(pause) => self.pass(),
            }
            self.tell();
        }
    }

    fn now(&self) -> u64 {
        self.world.millis()
    }

    fn next(&self) -> Option<u64> {
        let of_tasks = self.executions.values().filter_map(|execution| execution.next(self.lease_until));
        of_tasks.chain(self.fuse_at).min()
    }

    /// A new agent takes the place of the one before.
    fn accept(&mut self, stream: DuplexStream, requests: &mpsc::UnboundedSender<(u64, Request)>) {
        self.agents += 1;
        let (reader, writer) = tokio::io::split(stream);
        let (to_agent, answers) = mpsc::unbounded_channel();
        tokio::spawn(write(writer, answers));
        tokio::spawn(read(self.agents, reader, requests.clone()));
        self.agent = Some(Agent { number: self.agents, to_agent, synced: false });
    }

    fn hear(&mut self, number: u64, request: Request) {
        if self.agent.as_ref().is_none_or(|agent| agent.number != number) {
            return;
        }
        match request {
            Request::Greeting(_) => self.say(Answer::Greeting(SupervisorGreeting {
                version: MODELLED,
                worker_id: self.id.to_string(),
                boot_id: "simulated".into(),
                capabilities: Some(v1::Capabilities {
                    runtimes: vec!["process".into()],
                    ..Default::default()
                }),
                owner: None,
            })),
            Request::Sync(sync) => self.tell_holdings(sync.generation),
            Request::Starts(starts) => {
                starts.starts.into_iter().filter_map(|start| start.assignment).for_each(|a| self.start(a));
            }
            Request::Stops(stops) => stops.stops.iter().for_each(|stop| self.stop(stop)),
            Request::Acks(acks) => acks.acks.iter().for_each(|ack| self.acknowledged(ack)),
            Request::Lease(lease) => self.renew(lease.boot_millis),
            Request::LogsFrom(_) | Request::LogAcks(_) | Request::Stored(_) | Request::Saved(_) => {}
            Request::Ping(_) | Request::Put(_) => {}
        }
    }

    fn say(&self, answer: Answer) {
        if let Some(agent) = &self.agent {
            // An agent that is gone is told by nobody.
            let _gone = agent.to_agent.send(answer);
        }
    }

    fn running(&self) -> u32 {
        self.executions.values().filter(|execution| execution.is_active()).count() as u32
    }

    fn tell_holdings(&mut self, generation: u64) {
        let held = self.executions.iter().map(|(id, execution)| v1::Held {
            execution_id: id.to_string(),
            fence: execution.fence.0,
            running: execution.is_active(),
            job_id: String::new(),
        });
        let reports = self.executions.iter().filter_map(|(id, execution)| execution.report(*id));
        let (held, reports, running) = (held.collect(), reports.collect(), self.running());
        self.fresh.clear();
        self.say(Answer::Holdings(Holdings { generation, held, reports, running }));
        if let Some(agent) = &mut self.agent {
            agent.synced = true;
        }
    }

    /// Sends what is new.
    fn tell(&mut self) {
        if self.fresh.is_empty() || !self.agent.as_ref().is_some_and(|agent| agent.synced) {
            return;
        }
        let reports = std::mem::take(&mut self.fresh);
        self.say(Answer::Reports(Reports { reports, running: self.running() }));
    }

    fn announce(&mut self, id: ExecutionId) {
        self.fresh.extend(self.executions.get(&id).and_then(|execution| execution.report(id)));
    }

    // What the server asks for.

    fn start(&mut self, assignment: v1::Assignment) {
        let (Ok(id), Ok(job)) = (assignment.execution_id.parse::<ExecutionId>(), assignment.job_id.parse())
        else {
            return;
        };
        let fence = Fence(assignment.fence);
        self.world.saw(id, Step::Heard { fence });
        if self.executions.contains_key(&id) {
            return self.announce(id);
        }
        if self.disk.journal().forgotten.contains(&id) {
            return self.fresh.push(refused(id, fence));
        }
        let full = self.running() as usize >= self.slots;
        let Ok(spec) = serde_json::from_slice(&assignment.spec).map(Arc::new) else {
            return self.fresh.push(refused(id, fence));
        };
        let spec = Some(spec);
        self.executions.insert(id, Execution { job, fence, spec, discard: false, phase: Phase::Waiting });
        if full {
            return self.conclude(id, refused(id, fence));
        }
        self.admit();
    }

    /// Writes down what waits, if there is a lease to start it under.
    fn admit(&mut self) {
        let now = self.now();
        if self.lease_until <= now {
            return;
        }
        for execution in self.executions.values_mut() {
            if matches!(execution.phase, Phase::Waiting) {
                execution.phase = Phase::Starting { at: now + self.world.draw(1, WRITE_MILLIS) };
            }
        }
    }

    fn stop(&mut self, stop: &v1::Stop) {
        let Ok(id) = stop.execution_id.parse::<ExecutionId>() else { return };
        let now = self.now();
        let patience = self.world.draw(0, stop.grace_ms * 2);
        let Some(execution) = self.executions.get_mut(&id) else {
            let mut journal = self.disk.journal();
            if stop.discard {
                journal.forgotten.insert(id);
            } else if !journal.forgotten.contains(&id) {
                self.fresh.push(refused(id, Fence(stop.fence)));
            }
            return;
        };
        execution.discard |= stop.discard;
        let fence = execution.fence;
        match &mut execution.phase {
            Phase::Waiting | Phase::Starting { .. } => self.conclude(id, refused(id, fence)),
            Phase::Running(task) if stop.grace_ms == 0 || task.frozen => self.kill(id, How::Stopped),
            Phase::Running(task) => {
                if task.stop_by.is_none() {
                    let left = (task.since + task.left).saturating_sub(now).min(patience);
                    *task = Running { left, since: now, exit: 143, ..*task };
                }
                let by = now + stop.grace_ms;
                task.stop_by = Some(task.stop_by.map_or(by, |before| before.min(by)));
            }
            Phase::Ending { .. } => {}
            Phase::Ended { .. } if stop.discard => self.forget(id),
            Phase::Ended { .. } => self.announce(id),
        }
    }

    fn acknowledged(&mut self, ack: &v1::ReportAck) {
        let Ok(id) = ack.execution_id.parse::<ExecutionId>() else { return };
        let ended = self.executions.get(&id).is_some_and(|execution| {
            execution.fence.0 == ack.fence && matches!(execution.phase, Phase::Ended { .. })
        });
        if ack.r#final && ended {
            self.forget(id);
        }
    }

    fn renew(&mut self, until: u64) {
        let now = self.now();
        if until <= self.lease_until || until <= now {
            return;
        }
        self.lease_until = until;
        self.fuse_at = Some(until + self.world.draw(0, FUSE_MILLIS));
        for (&id, execution) in &mut self.executions {
            if let Phase::Running(task) = &mut execution.phase
                && task.frozen
            {
                *task = Running { frozen: false, since: now, ..*task };
                self.world.saw(id, Step::Resumed);
            }
        }
        self.admit();
    }

    // What time brings.

    fn pass(&mut self) {
        let now = self.now();
        if self.fuse_at.is_some_and(|at| at <= now) {
            self.fuse_at = None;
            self.freeze(now);
        }
        let until = self.lease_until;
        let due = |execution: &Execution| execution.next(until).is_some_and(|at| at <= now);
        let due: Vec<_> = self.executions.iter().filter(|(_, e)| due(e)).map(|(&id, _)| id).collect();
        for id in due {
            self.advance(id, now);
        }
    }

    fn freeze(&mut self, now: u64) {
        for (&id, execution) in &mut self.executions {
            let exempt = execution.spec.as_ref().is_some_and(|spec| spec.delivery == Delivery::AtMostOnce);
            if let Phase::Running(task) = &mut execution.phase
                && !exempt
                && !task.frozen
            {
                let left = (task.since + task.left).saturating_sub(now);
                *task = Running { frozen: true, left, since: now, ..*task };
                self.world.saw(id, Step::Halted);
            }
        }
    }

    fn advance(&mut self, id: ExecutionId, now: u64) {
        let Some(execution) = self.executions.get_mut(&id) else { return };
        match &mut execution.phase {
            Phase::Starting { .. } if self.lease_until > now => {
                self.disk.journal().started.insert(id, execution.fence);
                self.spawn(id, now);
            }
            Phase::Running(task) if task.frozen => self.kill(id, How::Interrupted),
            Phase::Running(task) if task.since + task.left <= now => {
                let (exit, how) =
                    (task.exit, if task.stop_by.is_some() { How::Stopped } else { How::Exited });
                let fence = execution.fence;
                self.world.saw(id, Step::Ended { exit });
                self.conclude(id, finished(id, fence, how, Some(exit)));
            }
            Phase::Running(_) => self.kill(id, How::Stopped),
            Phase::Ending { report, .. } => {
                let report = report.clone();
                self.disk.journal().ended.insert(id, report.clone());
                self.disk.journal().started.entry(id).or_insert(execution.fence);
                execution.phase = Phase::Ended { report };
                if execution.discard { self.forget(id) } else { self.announce(id) }
            }
            _ => {}
        }
    }

    /// A start that is written down becomes a task, or fails to.
    fn spawn(&mut self, id: ExecutionId, now: u64) {
        let Some(execution) = self.executions.get_mut(&id) else { return };
        let Execution { job, fence, .. } = *execution;
        let Some(spec) = execution.spec.clone() else { return };
        match self.world.plan(&Task { execution: id, job, fence, spec }) {
            Plan::Run { millis, exit } => {
                let task = Running { left: millis, since: now, frozen: false, exit, stop_by: None };
                execution.phase = Phase::Running(task);
                self.world.saw(id, Step::Started { job, fence });
                self.announce(id);
            }
            Plan::Refuse => self.conclude(id, refused(id, fence)),
            Plan::StartFail => {
                let failed = v1::StartFailed { code: "start_failed".into(), detail: String::new() };
                self.conclude(id, report(id, fence, Body::StartFailed(failed)));
            }
        }
    }

    fn kill(&mut self, id: ExecutionId, how: How) {
        let Some(execution) = self.executions.get(&id) else { return };
        let report = finished(id, execution.fence, how, Some(137));
        self.world.saw(id, Step::Killed);
        self.conclude(id, report);
    }

    /// An execution is over here: its outcome is written down, then reported.
    fn conclude(&mut self, id: ExecutionId, report: v1::Report) {
        let at = self.now() + self.world.draw(1, WRITE_MILLIS);
        if let Some(execution) = self.executions.get_mut(&id) {
            execution.phase = Phase::Ending { at, report };
        }
    }

    fn forget(&mut self, id: ExecutionId) {
        self.executions.remove(&id);
        let mut journal = self.disk.journal();
        journal.started.remove(&id);
        journal.ended.remove(&id);
        journal.forgotten.insert(id);
    }
}

fn report(id: ExecutionId, fence: Fence, body: Body) -> v1::Report {
    v1::Report { execution_id: id.to_string(), fence: fence.0, body: Some(body) }
}

fn refused(id: ExecutionId, fence: Fence) -> v1::Report {
    let body = v1::Refused { reason: "no_room".into(), detail: String::new() };
    report(id, fence, Body::Refused(body))
}

fn finished(id: ExecutionId, fence: Fence, how: How, exit_code: Option<i32>) -> v1::Report {
    let body = v1::Finished { how: how.into(), exit_code, ..v1::Finished::default() };
    report(id, fence, Body::Finished(body))
}

async fn pause_for(pause: Option<Duration>) {
    match pause {
        // What is due in the middle of a millisecond is so at its end.
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

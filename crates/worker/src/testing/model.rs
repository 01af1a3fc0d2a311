//! The supervisor of a simulated machine: core, journal and messages of the product, over tasks that only take time.
//!
//! Tasks start at once, programs are never slow to load, and the fuse never fails; smaller simulations cover these
//! cases. The journal is byte for byte that of the product, and a power cut may truncate it anywhere after the synced
//! part.

use model::StopReason;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ::model::{ExecutionId, Fence, JobId, WorkerId};
use proto::v1;
use proto::v1::finished::How;
use supervisor::{
    Action, Assigned, Batch, ClockReading, EndReason, Event, Launch, LaunchFailure, Limits, StartFailure,
};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use super::disk::Disk;
use super::wire::{read, write};
use super::{Plan, Step, Task, World};
use crate::link::{Answer, Holdings, Reports, Request, Start, SupervisorGreeting};
use crate::supervisor::convert::{self, StartLocation, WorkerPayloads};
use crate::supervisor::journal;
use crate::supervisor::task::StartRequest;

/// Protocol version of the simulated supervisor: it does not support pings and checkpoints.
const PROTOCOL_VERSION: u32 = 1;
/// Maximum delay of the fuse, in milliseconds.
const FUSE_MILLIS: u64 = 40;
/// Maximum time to write a batch of the journal, in milliseconds.
const WRITE_MILLIS: u64 = 20;
/// Number of reports that fit into one message: few, so that reports are often split.
const REPORTS_MAX: usize = 3;
const LIMITS: Limits = Limits { orphan_limit: 300_000 };

/// A simulated process. All times are simulated milliseconds.
#[derive(Debug)]
struct Process {
    /// Remaining run time at `since`.
    left: u64,
    since: u64,
    frozen: bool,
    exit: i32,
    is_exempt: bool,
    grace: u64,
}

impl Process {
    /// Returns when the process exits by itself; `None` while it is frozen.
    fn end(&self) -> Option<u64> {
        (!self.frozen).then_some(self.since + self.left)
    }

    /// Freezes or continues the process, and limits its remaining run time to `at_most`.
    fn set(&mut self, now: u64, frozen: bool, at_most: u64) {
        let ran = if self.frozen { 0 } else { now - self.since };
        self.left = self.left.saturating_sub(ran).min(at_most);
        (self.since, self.frozen) = (now, frozen);
    }
}

struct Agent {
    number: u64,
    to_agent: mpsc::UnboundedSender<Answer>,
    synced: bool,
}

pub(super) struct Supervisor {
    world: Arc<dyn World>,
    id: WorkerId,
    slots: usize,
    start_location: StartLocation,
    core: supervisor::Supervisor<WorkerPayloads>,
    disk: Disk,
    /// The batch that is being written: completion time, bytes, and whether it is synced.
    writing: Option<(u64, Vec<u8>, bool)>,
    processes: BTreeMap<ExecutionId, Process>,
    fuse: supervisor::Fuse,
    /// Time of the fuse's alarm.
    fuse_at: Option<u64>,
    agents: u64,
    agent: Option<Agent>,
}

/// Simulates a power cut: all tasks end, and some of the unsynced bytes may be lost.
impl Drop for Supervisor {
    fn drop(&mut self) {
        for id in self.processes.keys() {
            self.world.record_step(*id, Step::Killed);
        }
        if let Some((_, bytes, _)) = self.writing.take() {
            self.disk.write(&bytes);
        }
        let (synced, len) = self.disk.extent();
        self.disk.truncate_to(self.world.random_millis(synced, len));
    }
}

impl Supervisor {
    /// Creates a supervisor from the state on its disk.
    pub(super) fn new(world: Arc<dyn World>, id: WorkerId, slots: usize, disk: Disk) -> Self {
        let now = ClockReading { boot: world.millis(), suspended: 0 };
        let core = supervisor::Supervisor::new(LIMITS, convert::state(disk.open(id)), now);
        Self {
            world,
            id,
            slots,
            start_location: StartLocation { boot_id: "simulated".into(), folder_id: String::new() },
            core,
            disk,
            writing: None,
            processes: BTreeMap::new(),
            fuse: supervisor::Fuse::default(),
            fuse_at: None,
            agents: 0,
            agent: None,
        }
    }

    pub(super) async fn run(mut self, mut accepted: mpsc::UnboundedReceiver<DuplexStream>) -> Infallible {
        let (requests, mut heard) = mpsc::unbounded_channel();
        loop {
            self.turn();
            let pause = self.next().map(|at| Duration::from_millis(at.saturating_sub(self.now())));
            tokio::select! {
                biased;
                Some((number, request)) = heard.recv() => self.handle_request(number, request),
                Some(stream) = accepted.recv() => self.accept(stream, &requests),
                () = pause_for(pause) => self.pass(),
            }
        }
    }

    fn now(&self) -> u64 {
        self.world.millis()
    }

    fn next(&self) -> Option<u64> {
        let ends = self.processes.values().filter_map(Process::end);
        let written = self.writing.as_ref().map(|(at, ..)| *at);
        ends.chain(written).chain(self.fuse_at).chain(self.core.next_alarm()).min()
    }

    fn handle(&mut self, event: Event<WorkerPayloads>) {
        let moment = ClockReading { boot: self.now(), suspended: 0 };
        self.core.handle(moment, event);
        self.act();
    }

    /// Does what one turn of the real supervisor's loop does.
    fn turn(&mut self) {
        while let Some((id, launch)) = self.core.next_launch(self.now()) {
            if let Launch::First(order) = launch {
                self.launch(id, &order);
            }
        }
        self.core.flush();
        self.act();
        self.send_reports();
    }

    fn act(&mut self) {
        while let Some(action) = self.core.next_action() {
            match action {
                Action::WriteJournal(Batch { entries, sync }) => {
                    let records =
                        entries.into_iter().map(|entry| convert::record(entry, &self.start_location).into());
                    let records: Vec<journal::Entry> = records.collect();
                    let bytes = journal::batch(self.disk.extent().0, &records);
                    self.writing =
                        Some((self.now() + self.world.random_millis(1, WRITE_MILLIS), bytes, sync));
                }
                Action::PublishLease(until) => {
                    let alarm = self.fuse.lease_renewed(until);
                    self.fuse_at = Some(alarm + self.world.random_millis(0, FUSE_MILLIS));
                }
                Action::Terminate(id, _) => self.terminate(id),
                Action::Kill(ids) => ids.into_iter().for_each(|id| self.kill(id)),
                Action::Freeze(ids) => ids.into_iter().for_each(|id| self.set_frozen(id, true)),
                Action::Thaw(ids) => ids.into_iter().for_each(|id| self.set_frozen(id, false)),
                // Launches complete at once, and executions have no folders and logs.
                Action::ObserveLaunch(_) | Action::KillLaunches(_) | Action::DropLaunch(_) => {}
                Action::RemoveFolder(_) | Action::DropLog(_) => {}
            }
        }
    }

    // The agent.

    /// A new agent replaces the previous one.
    fn accept(&mut self, stream: DuplexStream, requests: &mpsc::UnboundedSender<(u64, Request)>) {
        self.agents += 1;
        let (reader, writer) = tokio::io::split(stream);
        let (to_agent, answers) = mpsc::unbounded_channel();
        tokio::spawn(write(writer, answers));
        tokio::spawn(read(self.agents, reader, requests.clone()));
        self.agent = Some(Agent { number: self.agents, to_agent, synced: false });
    }

    fn handle_request(&mut self, number: u64, request: Request) {
        if self.agent.as_ref().is_none_or(|agent| agent.number != number) {
            return;
        }
        match request {
            Request::Greeting(_) => {
                self.handle(Event::AgentConnected { slots: self.slots });
                self.send_to_agent(Answer::Greeting(SupervisorGreeting {
                    version: PROTOCOL_VERSION,
                    worker_id: self.id.to_string(),
                    boot_id: self.start_location.boot_id.clone(),
                    capabilities: Some(v1::Capabilities {
                        runtimes: vec!["process".into()],
                        runtime_versions: std::collections::HashMap::new(),
                        ..Default::default()
                    }),
                    owner: None,
                    shims: Vec::new(),
                    container_engine: None,
                }));
            }
            Request::Sync(sync) => self.send_holdings(sync.generation),
            Request::Starts(starts) => starts.starts.into_iter().for_each(|start| self.start(start)),
            Request::Stops(stops) => stops.stops.into_iter().for_each(|stop| self.stop(&stop)),
            Request::Acks(acks) => acks.acks.iter().filter(|ack| ack.r#final).for_each(|ack| {
                if let Ok(execution) = ack.execution_id.parse() {
                    self.handle(Event::EndAcknowledged { execution, fence: Fence(ack.fence) });
                }
            }),
            Request::Lease(lease) => self.handle(Event::LeaseRenewed { until: lease.boot_millis }),
            Request::LogsFrom(_) | Request::LogAcks(_) | Request::Stored(_) | Request::Saved(_) => {}
            Request::Ping(_) | Request::Put(_) | Request::Unhealthy(_) | Request::Checked(_) => {}
        }
    }

    fn send_to_agent(&self, answer: Answer) {
        if let Some(agent) = &self.agent {
            // The agent may have disconnected.
            let _gone = agent.to_agent.send(answer);
        }
    }

    fn running(&self) -> u32 {
        u32::try_from(self.core.active()).unwrap_or(u32::MAX)
    }

    fn send_holdings(&mut self, generation: u64) {
        let held = self.core.holdings().map(convert::held).collect();
        self.core.report_all();
        let (reports, running) = (self.reports(), self.running());
        self.send_to_agent(Answer::Holdings(Holdings { generation, held, reports, running }));
        if let Some(agent) = &mut self.agent {
            agent.synced = true;
        }
        self.send_reports();
    }

    /// Returns the next reports, as many as fit into one message.
    fn reports(&mut self) -> Vec<v1::Report> {
        let started = || v1::Started { at_unix_ms: 0, pid: 1 };
        let reports = std::iter::from_fn(|| self.core.next_report()).take(REPORTS_MAX);
        reports.map(|(id, fence, report)| convert::message(id, fence, report, started)).collect()
    }

    /// Sends new reports to the agent.
    fn send_reports(&mut self) {
        while self.core.has_reports() && self.agent.as_ref().is_some_and(|agent| agent.synced) {
            let (reports, running) = (self.reports(), self.running());
            self.send_to_agent(Answer::Reports(Reports { reports, running }));
        }
    }

    fn start(&mut self, start: Start) {
        let Some(assignment) = start.assignment else { return };
        let Ok(execution) = assignment.execution_id.parse::<ExecutionId>() else { return };
        let (fence, job) = (Fence(assignment.fence), assignment.job_id.parse().ok());
        self.world.record_step(execution, Step::Heard { fence });
        let order = StartRequest::new(assignment, start.staged, start.inputs, start.secrets);
        let terms = order.as_ref().map(StartRequest::terms).unwrap_or_default();
        let assigned = Assigned { execution, fence, job, policy: terms, order, disk_full: false };
        self.handle(Event::Assigned(Box::new(assigned)));
    }

    fn stop(&mut self, stop: &v1::Stop) {
        let Ok(execution) = stop.execution_id.parse() else { return };
        let (fence, grace, discard) = (Fence(stop.fence), stop.grace_ms, stop.discard);
        let reason = stop.reason.parse().unwrap_or(StopReason::Cancelled);
        self.handle(Event::StopRequested { execution, fence, grace, discard, reason });
    }

    // Tasks.

    /// Starts a simulated task, or fails to start it, after the start was written to the journal.
    fn launch(&mut self, execution: ExecutionId, order: &StartRequest) {
        let (fence, job) = (Fence(order.assignment.fence), order.assignment.job_id.parse());
        let job = job.unwrap_or(JobId::from_bits(0));
        let spec = Arc::new(order.spec.clone());
        let failure = match self.world.plan(&Task { execution, job, fence, spec }) {
            Plan::Run { millis, exit } => {
                let (now, terms) = (self.now(), order.terms());
                let process = Process {
                    left: millis,
                    since: now,
                    frozen: false,
                    exit,
                    is_exempt: terms.at_most_once,
                    grace: terms.grace,
                };
                self.processes.insert(execution, process);
                self.world.record_step(execution, Step::Started { job, fence });
                let at = ClockReading { boot: now, suspended: 0 };
                return self.handle(Event::Launched { execution, at, exit: None });
            }
            Plan::Refuse => LaunchFailure::DiskFull,
            Plan::StartFail => {
                LaunchFailure::Failed(StartFailure { code: "start_failed".into(), detail: String::new() })
            }
        };
        self.handle(Event::LaunchFailed { execution, failure });
    }

    /// Simulates SIGTERM: the process exits after a random time, up to twice its grace period.
    fn terminate(&mut self, id: ExecutionId) {
        let now = self.now();
        let Some(process) = self.processes.get_mut(&id) else { return };
        let patience = self.world.random_millis(0, process.grace * 2);
        process.set(now, false, patience);
        process.exit = 143;
    }

    fn set_frozen(&mut self, id: ExecutionId, frozen: bool) {
        let now = self.now();
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.frozen != frozen) else {
            return;
        };
        process.set(now, frozen, u64::MAX);
        self.world.record_step(id, if frozen { Step::Halted } else { Step::Resumed });
    }

    fn kill(&mut self, id: ExecutionId) {
        if self.processes.remove(&id).is_some() {
            self.world.record_step(id, Step::Killed);
            self.exited(id, 137);
        }
    }

    fn exited(&mut self, execution: ExecutionId, exit: i32) {
        self.handle(Event::Exited { execution });
        let how = match self.core.end_reason(execution) {
            Some(EndReason::ByItself | EndReason::Unhealthy) => How::Exited,
            Some(EndReason::Stopped(_)) => How::Stopped,
            Some(EndReason::TimedOut) => How::TimedOut,
            Some(EndReason::Orphaned | EndReason::ShutDown) => How::Interrupted,
            None => return,
        };
        let end = v1::Finished { how: how.into(), exit_code: Some(exit), ..v1::Finished::default() };
        self.handle(Event::AllProcessesExited { execution, end: Ok(end), outputs: None });
    }

    // Passing of time.

    fn pass(&mut self) {
        let now = self.now();
        if self.writing.as_ref().is_some_and(|(at, ..)| *at <= now)
            && let Some((_, bytes, sync)) = self.writing.take()
        {
            self.disk.write(&bytes);
            if sync {
                self.disk.sync();
            }
            self.handle(Event::JournalWritten);
        }
        if self.fuse_at.is_some_and(|at| at <= now) {
            self.fuse_at = None;
            self.fuse();
        }
        let ended = self.processes.iter().filter(|(_, process)| process.end().is_some_and(|at| at <= now));
        let ended: Vec<_> = ended.map(|(id, process)| (*id, process.exit)).collect();
        for (id, exit) in ended {
            self.processes.remove(&id);
            self.world.record_step(id, Step::Ended { exit });
            self.exited(id, exit);
        }
        if self.core.next_alarm().is_some_and(|at| at <= now) {
            self.handle(Event::AlarmFired);
        }
    }

    /// Carries out a check of the fuse, if its core wants one.
    fn fuse(&mut self) {
        let now = self.now();
        let Some(check) = self.fuse.alarm_fired(now) else { return };
        let guarded = |process: &Process| !process.is_exempt && !process.frozen;
        let ids: Vec<_> = self.processes.iter().filter(|(_, it)| guarded(it)).map(|(id, _)| *id).collect();
        let frozen = ids.len();
        ids.into_iter().for_each(|id| self.set_frozen(id, true));
        if check.must_report(frozen) {
            self.handle(Event::FuseFroze { since: ClockReading { boot: now, suspended: 0 } });
        }
        let late = self.world.random_millis(0, FUSE_MILLIS);
        self.fuse_at = Some(check.next_alarm(now, false) + late);
    }
}

async fn pause_for(pause: Option<Duration>) {
    match pause {
        // A time within a millisecond is handled at its end.
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

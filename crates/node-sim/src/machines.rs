//! Machines of workers: the real agent over the real supervisor core, and tasks that only take time.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use model::worker::Capacity;
use model::{Bytes, ExecutionId, Millicores, WorkerId};
use sim::dice::Dice;
use sim::history::{TaskStep, What};
use tokio::sync::Notify;
use turmoil::net::TcpStream;
use worker::AgentConfig;
use worker::testing::{ConnectFuture, Connection, Disk, Plan, Step, Task, World};

use crate::recorder::{self, Recorder};

/// Name of the host of a machine.
pub(crate) fn name(machine: usize) -> String {
    format!("w{machine}")
}

/// A machine, switched on or off; clones are the same machine.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) number: usize,
    pub(crate) id: WorkerId,
    pub(crate) disk: Disk,
    /// Kills the agent when notified; a new one is started.
    pub(crate) restart: Arc<Notify>,
    environment: Arc<Environment>,
}

#[derive(Debug)]
struct Environment {
    id: WorkerId,
    recorder: Recorder,
    dice: Mutex<Dice>,
}

impl Machine {
    pub(crate) fn new(number: usize, recorder: Recorder, dice: Dice) -> Self {
        let id = WorkerId::from_bits((1 << 100) + number as u128 + 1);
        let surroundings = Arc::new(Environment { id, recorder, dice: Mutex::new(dice) });
        Self { number, id, disk: Disk::default(), restart: Arc::default(), environment: surroundings }
    }

    /// Name of the machine's host.
    pub(crate) fn name(&self) -> String {
        name(self.number)
    }

    /// Runs the machine from power-on until its power is cut.
    pub(crate) async fn run_host(self, servers: Vec<String>, token: String, dir: &Path) -> turmoil::Result {
        let name = self.name();
        let mut config = AgentConfig::new(dir.join(&name), "", token);
        std::fs::create_dir_all(&config.dir)?;
        config.servers = servers;
        config.name = name;
        config.capacity =
            Capacity { cpu: Millicores(64_000), memory: Bytes(64 << 30), custom: [].into(), slots: 6 };
        let world = self.environment as Arc<dyn World>;
        match worker::testing::run(world, self.id, self.disk, config, self.restart).await {}
    }
}

impl Environment {
    fn dice(&self) -> std::sync::MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World for Environment {
    fn millis(&self) -> u64 {
        // Starts above zero, so that no lease has expired before it began.
        1_000 + u64::try_from(recorder::elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn connect(&self, host: String, port: u16) -> ConnectFuture {
        Box::pin(async move { Ok(Box::new(TcpStream::connect((host, port)).await?) as Connection) })
    }

    fn plan(&self, _task: &Task) -> Plan {
        let mut dice = self.dice();
        match dice.below(40) {
            0 => Plan::Refuse,
            1 => Plan::StartFail,
            n => {
                // Some tasks run longer than the lease, so that it expires during the task, and another server takes
                // over the worker.
                let longest = if n % 3 == 0 { 30_000 } else { 3_000 };
                Plan::Run { millis: dice.between(5, longest), exit: i32::from(n < 6) }
            }
        }
    }

    fn random_millis(&self, least: u64, most: u64) -> u64 {
        self.dice().between(least, most)
    }

    fn record_step(&self, execution: ExecutionId, step: Step) {
        let step = match step {
            Step::Heard { fence } => {
                return self.recorder.note(What::Heard { worker: self.id, execution, fence });
            }
            Step::Started { job, fence } => TaskStep::Started { job, fence, worker: self.id },
            Step::Halted => TaskStep::Halted,
            Step::Resumed => TaskStep::Resumed,
            Step::Ended { exit } => TaskStep::Ended { exit },
            Step::Killed => TaskStep::Killed,
        };
        self.recorder.note(What::Task { execution, step });
    }
}

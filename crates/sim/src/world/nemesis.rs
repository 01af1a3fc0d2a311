//! Injects faults, and ends them.
//!
//! [`World::fault`] runs at the beginning and at the end of each fault of the [plan](super::plan). Faults of one kind
//! may overlap, so cuts are counted, and a server, agent or machine is repaired whatever happened to it meanwhile.
//!
//! # Invariants
//! - After the end of all faults, nothing is cut, paused, down or full.

use std::collections::BTreeMap;

use model::Duration;

use super::World;
use super::plan::FaultKind;
use crate::history::What;

fn more<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    *counts.entry(key).or_default() += 1;
}

fn less<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl World {
    pub(super) fn fault(&mut self, index: usize, begins: bool) {
        let fault = self.plan.faults[index].clone();
        self.record(What::Fault { fault: fault.to_string(), begins });
        self.stats.faults += u64::from(begins);
        match fault.kind {
            FaultKind::CrashServer { server } | FaultKind::PauseServer { server } => {
                let crash = matches!(fault.kind, FaultKind::CrashServer { .. });
                self.fault_of_server(server, crash, begins);
            }
            FaultKind::DrainLeader if begins => self.drain_leader(index),
            FaultKind::DrainLeader => self.resume_drained(index),
            FaultKind::StopServer { server } if begins => {
                if self.servers[server].up {
                    self.stop_server(server);
                }
            }
            // A process that has not stopped by then is killed.
            FaultKind::StopServer { server } => {
                if self.servers[server].up {
                    self.crash_server(server);
                }
                self.start_server(server);
            }
            FaultKind::CutServerFromStore { server } if begins => more(&mut self.net.from_store, server),
            FaultKind::CutServerFromStore { server } => less(&mut self.net.from_store, &server),
            FaultKind::CutWorker { worker, server } if begins => more(&mut self.net.cut, (worker, server)),
            FaultKind::CutWorker { worker, server } => less(&mut self.net.cut, &(worker, server)),
            FaultKind::MuteWorker { worker } if begins => more(&mut self.net.mute, worker),
            FaultKind::MuteWorker { worker } => less(&mut self.net.mute, &worker),
            FaultKind::SlowStore { .. }
            | FaultKind::CommitsFail { .. }
            | FaultKind::CommitsUnknown { .. } => {
                self.store_faults.retain(|(known, _)| *known != index);
                if begins {
                    self.store_faults.push((index, fault.kind));
                }
            }
            FaultKind::FillStore { commits } => {
                match begins {
                    true => self.store.fill(commits),
                    false => self.store.free(),
                }
                self.record(What::StoreFull { full: self.store.is_full() });
            }
            FaultKind::StepStoreClock { millis } => {
                self.store.step_clock(if begins { millis } else { -millis });
            }
            FaultKind::LoseTail { commits } if begins => self.lose_tail(commits),
            FaultKind::LoseLast { time } if begins => self.lose_tail(self.commits_of_the_last(time)),
            FaultKind::LoseTail { .. } | FaultKind::LoseLast { .. } => {}
            FaultKind::StepClock { server, millis } => {
                let step = millis.saturating_mul(1_000);
                self.servers[server].clock_error += if begins { step } else { -step };
            }
            FaultKind::RoughNet { loss, duplicate, reorder, delay } => {
                let net = &mut self.net;
                (net.loss, net.duplicate, net.reorder, net.delay_max) = match begins {
                    true => (loss, duplicate, reorder, delay),
                    false => (0.0, 0.0, false, Duration::from_millis(3)),
                };
            }
            FaultKind::Burst { jobs } if begins => (0..jobs).for_each(|_| self.submit()),
            FaultKind::Burst { .. } => {}
            FaultKind::CrashAgent { worker } => self.fault_of_agent(worker, true, begins),
            FaultKind::PauseAgent { worker } => self.fault_of_agent(worker, false, begins),
            FaultKind::CrashSupervisor { worker } => self.fault_of_supervisor(worker, true, begins),
            FaultKind::PauseSupervisor { worker } => self.fault_of_supervisor(worker, false, begins),
            FaultKind::BreakFuse { worker } if begins => self.break_fuse(worker),
            FaultKind::BreakFuse { worker } => self.mend_fuse(worker),
            FaultKind::BreakJournal { worker } => {
                let disk = &mut self.workers[worker].disk;
                disk.faults = if begins { disk.faults + 1 } else { disk.faults.saturating_sub(1) };
            }
            FaultKind::CrashMachine { worker } if begins => self.stop_machine(worker),
            FaultKind::WipeWorker { worker } if begins => {
                self.stop_machine(worker);
                let now = self.now;
                self.workers[worker].renew(&mut self.worker_dice, now);
            }
            FaultKind::CrashMachine { worker } | FaultKind::WipeWorker { worker } => {
                self.start_machine(worker)
            }
            FaultKind::PauseMachine { worker } => {
                let this = &self.workers[worker];
                if begins && this.up && !this.paused {
                    self.suspend(worker);
                } else if !begins && this.paused {
                    self.wake_machine(worker);
                }
            }
        }
    }

    fn fault_of_server(&mut self, server: usize, crash: bool, begins: bool) {
        match (begins, crash) {
            (true, true) if self.servers[server].up => self.crash_server(server),
            (true, false) if self.servers[server].up => self.servers[server].paused = true,
            (true, _) => {}
            // The server runs again, whatever happened to it meanwhile.
            (false, _) if !self.servers[server].up => self.start_server(server),
            (false, _) => self.resume_server(server),
        }
    }

    fn fault_of_agent(&mut self, worker: usize, crash: bool, begins: bool) {
        let this = &mut self.workers[worker];
        match (begins, crash) {
            (true, true) if this.agent.up => self.crash_agent(worker),
            (true, false) if this.agent.up => this.agent.paused = true,
            (true, _) => {}
            (false, _) if !this.up => {}
            (false, _) if !this.agent.up => self.start_agent(worker),
            (false, _) => self.resume_agent(worker),
        }
    }

    fn fault_of_supervisor(&mut self, worker: usize, crash: bool, begins: bool) {
        let this = &mut self.workers[worker];
        match (begins, crash) {
            (true, true) if this.supervisor.up => {
                // Without a supervisor an agent has no session.
                self.crash_supervisor(worker);
                if self.workers[worker].agent.up {
                    self.crash_agent(worker);
                    self.start_agent(worker);
                }
            }
            (true, false) if this.supervisor.up => {
                // Supervisor and fuse together fail only with the machine.
                self.mend_fuse(worker);
                self.workers[worker].supervisor.paused = true;
            }
            (true, _) => {}
            (false, _) if !this.up => {}
            (false, _) if !this.supervisor.up => self.start_supervisor(worker),
            (false, _) => self.resume_supervisor(worker),
        }
    }

    fn stop_machine(&mut self, worker: usize) {
        self.crash_supervisor(worker);
        self.lose_unsynced(worker);
        self.crash_agent(worker);
        let this = &mut self.workers[worker];
        (this.up, this.paused) = (false, false);
    }

    pub(super) fn start_machine(&mut self, worker: usize) {
        if !self.workers[worker].up {
            self.workers[worker].up = true;
            self.start_supervisor(worker);
            self.start_agent(worker);
        }
    }

    /// Loses the newest commits of the store. The store recorder drops them too, as a recorder would that reads the
    /// remaining commits.
    fn lose_tail(&mut self, commits: u32) {
        let commits = self.store.lose_tail(commits);
        let mut since = None;
        for _ in 0..commits {
            let newest = self.history.events.iter().rposition(|event| matches!(event.what, What::Commit(_)));
            since = newest.map(|newest| self.history.events.remove(newest).at).or(since);
        }
        self.record(What::TailLost { commits, since });
        for server in 0..self.servers.len() {
            if self.servers[server].up {
                self.crash_server(server);
                self.start_server(server);
            }
        }
    }

    fn commits_of_the_last(&self, time: Duration) -> u32 {
        let since = self.now - time;
        let newest = self.history.events.iter().rev().take_while(|event| event.at >= since);
        let commits = newest.filter(|event| matches!(event.what, What::Commit(_))).count();
        u32::try_from(commits).unwrap_or(u32::MAX)
    }

    /// Ends all faults and the load: no fault lasts longer than the rough time.
    pub(super) fn calm_down(&mut self) {
        self.calm_since = Some(self.now);
        self.record(What::Calm);
        self.close_clients();
    }
}

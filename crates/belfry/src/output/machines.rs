//! Tables and detailed views of servers and workers, for `belfry server` and `belfry worker`.
//!
//! The status of a server combines its role and its drain: `leader`, `standby`, `draining`, `drained`. The status of a
//! worker combines its connection, its admission and its health: `ready`, `unhealthy`, `cordoned`, `draining`,
//! `expected` (known, but not connected since the start of the leader), `lost`. CPU and memory are the reservations of
//! its executions, not their usage.

use model::Duration;
use model::api::{ClusterMember, CopyProgress, MemberRole, Server, Worker};
use model::worker::{Admission, WorkerStatus};

use super::OutputOptions;
use super::objects::{at, exact_or_none, labels};
use super::table::{Cell, Column, Detail, Row, Tone, column, wide};
use super::text::{bytes, escape};
use super::time::{exact, relative_or_exact};

pub(super) fn worker_status(worker: &Worker) -> Cell {
    match (worker.status, worker.admission) {
        (WorkerStatus::Lost, _) => Cell::new("lost", Tone::Bad),
        (WorkerStatus::Expected, _) => Cell::new("expected", Tone::Waiting),
        (WorkerStatus::Ready, Admission::Cordoned) => Cell::new("cordoned", Tone::Waiting),
        (WorkerStatus::Ready, Admission::Draining) => Cell::new("draining", Tone::Waiting),
        (WorkerStatus::Ready, Admission::Open) if health_problem(worker).is_some() => {
            Cell::new("unhealthy", Tone::Bad)
        }
        (WorkerStatus::Ready, Admission::Open) => Cell::new("ready", Tone::Good),
    }
}

fn server_status(server: &Server) -> Cell {
    match (server.leader, server.draining) {
        (true, true) => Cell::new("draining", Tone::Waiting),
        (true, false) => Cell::new("leader", Tone::Good),
        (false, true) => Cell::new("drained", Tone::Waiting),
        (false, false) => Cell::new("standby", Tone::Good),
    }
}

fn epoch(server: &Server) -> Cell {
    server.epoch.map_or_else(|| "-".into(), |epoch| epoch.to_string().into())
}

/// Replication lag of a standby. `cold` is a standby without a lag: at a takeover it must first load all live rows.
fn lag(server: &Server) -> Cell {
    match server.lag {
        Some(lag) if lag < Duration::from_secs(10) => Cell::new(lag.to_string(), Tone::Good),
        Some(lag) => Cell::new(lag.to_string(), Tone::Bad),
        None if server.leader => "-".into(),
        None => Cell::new("cold", Tone::Waiting),
    }
}

impl Row for Server {
    const COLUMNS: &'static [Column] = &[
        column("ID", 30),
        column("NAME", 12).cut(12),
        column("STATUS", 8),
        column("SHARDS", 6).optional(1),
        column("EPOCH", 5).optional(4),
        column("LAG", 6),
        column("URL", 28).optional(2),
        column("STARTED", 10).optional(3),
        wide("VERSION", 9),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.id.to_string().into(),
            self.name.as_str().into(),
            server_status(self),
            self.shards.to_string().into(),
            epoch(self),
            lag(self),
            self.url.as_deref().unwrap_or("-").into(),
            relative_or_exact(look, self.started_at).into(),
            self.version.as_str().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Detail for Server {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        vec![
            ("Server", self.id.to_string().into()),
            ("Name", self.name.as_str().into()),
            ("Status", server_status(self)),
            ("Shards", self.shards.to_string().into()),
            ("Epoch", epoch(self)),
            ("Lag", lag(self)),
            ("URL", self.url.as_deref().unwrap_or("-").into()),
            ("Version", self.version.as_str().into()),
            ("Started", exact(look, self.started_at).into()),
        ]
    }
}

impl Row for ClusterMember {
    const COLUMNS: &'static [Column] = &[
        column("ID", 16),
        column("NAME", 12).cut(12),
        column("ROLE", 7),
        column("STATUS", 13),
        column("MISSING ENTRIES", 15).optional(2),
        column("LAST CONTACT", 12).optional(1),
        column("ADDRESS", 21),
    ];

    fn cells(&self, _look: &OutputOptions) -> Vec<Cell> {
        let role = match self.role {
            MemberRole::Leader => Cell::new("leader", Tone::Good),
            MemberRole::Voter => Cell::new("voter", Tone::Good),
            MemberRole::Learner => Cell::new("learner", Tone::Waiting),
        };
        let status = match self.copying {
            _ if !self.running => Cell::new("down", Tone::Bad),
            Some(CopyProgress { sent, total }) => {
                let percent = sent.0.saturating_mul(100) / total.0.max(1);
                Cell::new(format!("copying {percent} %"), Tone::Waiting)
            }
            None => Cell::new("running", Tone::Good),
        };
        vec![
            self.id.as_str().into(),
            self.name.as_str().into(),
            role,
            status,
            self.missing_entries.to_string().into(),
            self.last_contact.map_or_else(|| "-".into(), |contact| contact.to_string().into()),
            self.address.as_str().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.clone()
    }
}

fn health_problem(worker: &Worker) -> Option<&str> {
    worker.health.as_ref().and_then(|h| h.problem.as_deref())
}

impl Row for Worker {
    const COLUMNS: &'static [Column] = &[
        column("ID", 30),
        column("NAME", 16).cut(12),
        column("STATUS", 9),
        column("RUNNING", 7),
        column("ALLOCATED CPU", 13).optional(2),
        column("ALLOCATED MEMORY", 20).optional(3),
        column("HEARTBEAT", 10).optional(1),
        wide("VERSION", 9),
        wide("LABELS", 12),
        wide("CREATED", 30),
    ];

    fn cells(&self, look: &OutputOptions) -> Vec<Cell> {
        vec![
            self.id.to_string().into(),
            self.name.as_str().into(),
            worker_status(self),
            format!("{}/{}", self.allocated.executions, self.capacity.slots).into(),
            format!("{}/{}", self.allocated.cpu, self.capacity.cpu).into(),
            format!("{}/{}", bytes(self.allocated.memory.0), bytes(self.capacity.memory.0)).into(),
            at(look, self.last_heartbeat_at),
            self.version.as_str().into(),
            labels(&self.labels),
            relative_or_exact(look, self.created_at).into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Detail for Worker {
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)> {
        let mut lines = vec![
            ("Worker", self.id.to_string().into()),
            ("Name", self.name.as_str().into()),
            ("Status", worker_status(self)),
            ("Version", self.version.as_str().into()),
            ("Labels", labels(&self.labels)),
            ("Address", self.address.as_deref().into()),
            ("Executions", format!("{} of {} slots", self.allocated.executions, self.capacity.slots).into()),
            ("CPU", format!("{} of {} allocated", self.allocated.cpu, self.capacity.cpu).into()),
            (
                "Memory",
                format!("{} of {} allocated", bytes(self.allocated.memory.0), bytes(self.capacity.memory.0))
                    .into(),
            ),
            ("Runtimes", self.capabilities.runtimes.join(", ").into()),
            ("Capabilities", capabilities(self).into()),
            ("Heartbeat", exact_or_none(look, self.last_heartbeat_at)),
            ("Created", exact(look, self.created_at).into()),
            ("Updated", exact(look, self.updated_at).into()),
        ];
        for (name, capacity) in &self.capacity.custom {
            let allocated = self.allocated.custom.get(name).copied().unwrap_or(0);
            lines.push(("Resource", format!("{name}: {allocated} of {capacity} allocated").into()));
        }
        if let Some(health) = &self.health {
            lines.push(("CPU usage", health.cpu_used.to_string().into()));
            lines.push(("Free memory", bytes(health.memory_available.0).into()));
            lines.push(("Free disk", bytes(health.disk_available.0).into()));
        }
        for kept in &self.reservations {
            let holder = match (&kept.schedule, kept.scheduled_for, kept.job) {
                (Some(schedule), Some(time), _) => format!("schedule {schedule} at {}", exact(look, time)),
                (.., Some(job)) => format!("job {job}"),
                _ => "another holder".to_owned(),
            };
            let text = format!("{} CPU and {} memory for {holder}", kept.cpu, bytes(kept.memory.0));
            lines.push(("Reservation", text.into()));
        }
        lines.extend(health_problem(self).map(|problem| ("Problem", Cell::new(problem, Tone::Bad))));
        lines
    }
}

fn capabilities(worker: &Worker) -> String {
    let capabilities = &worker.capabilities;
    let all = [
        (capabilities.memory_limit, "memory limits"),
        (capabilities.cpu_limit, "CPU limits"),
        (capabilities.pids_limit, "process limits"),
        (capabilities.separate_user, "separate user for tasks"),
    ];
    let mut can: Vec<_> = all.iter().filter(|(can, _)| *can).map(|(_, what)| (*what).to_owned()).collect();
    can.extend(capabilities.volumes.iter().map(|volume| format!("volume {}", escape(volume))));
    if can.is_empty() { "none".into() } else { can.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::{Format, list, one};

    fn look(format: Format) -> OutputOptions {
        OutputOptions { format, color: false, now: "2026-11-21T08:10:00Z".parse().unwrap(), width: None }
    }

    fn worker(changes: serde_json::Value) -> Worker {
        let mut worker = json!({
            "id": "wkr_01k9zq3m6c0000000000000000", "name": "w1", "version": "0.1.0", "labels": {"zone": "a"}, "status": "ready",
            "admission": "open",
            "capacity": {"cpu": "4", "memory": "8GiB", "slots": 64, "custom": {"gpu": 2}},
            "capabilities": {"runtimes": ["process"], "memory_limit": true, "cpu_limit": true, "pids_limit": false, "separate_user": true},
            "allocated": {"executions": 3, "cpu": "300m", "memory": "192MiB", "custom": {"gpu": 1}},
            "health": {"cpu_used": "1500m", "memory_available": 4294967296u64, "disk_available": 107374182400u64, "running": 3},
            "last_heartbeat_at": "2026-11-21T08:09:58Z", "created_at": "2026-11-20T08:00:00Z", "updated_at": "2026-11-20T08:00:00Z",
        });
        for (key, value) in changes.as_object().unwrap() {
            worker[key] = value.clone();
        }
        serde_json::from_value(worker).unwrap()
    }

    #[test]
    fn workers_as_a_table() {
        let workers = [
            worker(json!({})),
            worker(json!({"status": "lost"})),
            worker(json!({"admission": "draining"})),
            worker(
                json!({"health": {"cpu_used": "0", "memory_available": 0, "disk_available": 0, "running": 0, "problem": "disk almost full"}}),
            ),
        ];
        insta::assert_snapshot!("workers_table", list(&look(Format::Table), &workers).unwrap());
        insta::assert_snapshot!("workers_wide", list(&look(Format::Wide), &workers[..1]).unwrap());
        insta::assert_snapshot!("worker_detail", one(&look(Format::Table), &workers[3]).unwrap());
    }

    #[test]
    fn members_as_a_table() {
        let member = |name: &str, changes: serde_json::Value| -> ClusterMember {
            let mut member = json!({
                "id": "d0e1f2a3b4c5d6e7", "name": name, "role": "voter", "running": true, "missing_entries": 0,
                "address": "127.0.0.1:7171",
            });
            member.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            serde_json::from_value(member).unwrap()
        };
        let members = [
            member("a", json!({"role": "leader"})),
            member("b", json!({"missing_entries": 12, "last_contact": "20ms"})),
            member("c", json!({"running": false, "missing_entries": 7000, "last_contact": "4m"})),
            member(
                "d",
                json!({"role": "learner", "missing_entries": 900_000, "copying": {"sent": 268_435_456, "total": 1_073_741_824}}),
            ),
            // A server that has ended gets no copy.
            member("e", json!({"running": false, "copying": {"sent": 5, "total": 10}})),
        ];
        insta::assert_snapshot!("members_table", list(&look(Format::Table), &members).unwrap());
    }
}

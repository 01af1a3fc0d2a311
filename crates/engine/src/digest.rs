//! What an engine knows that its rows know as well, as lines that can be compared.
//!
//! An engine that was rebuilt from the committed rows must say the same as the running one that
//! committed them (I28). Left out is what a rebuilt engine cannot know and need not: sessions, leases,
//! rates, fair shares, and timers on the steady clock. That timers on the wall are armed is what
//! [`Engine::check_invariants`] checks.

use model::record::WorkerRecord;
use model::worker::WorkerStatus;

use crate::engine::Engine;
use crate::profile::Profile;

impl Engine {
    /// One line for each thing that a rebuilt engine knows as well, sorted. Call it after a flush.
    ///
    /// # Cost
    /// Shows every live row as text: for the simulator and for tests.
    pub fn digest(&self) -> Vec<String> {
        let mut lines = Vec::with_capacity(self.jobs.len() + self.workers.len());
        for (id, job) in &self.jobs {
            let live = job.live.as_ref().map(|live| &live.record);
            // Which number a shape has is each engine's own affair.
            let profile = Profile { shape_id: 0, ..(*job.profile).clone() };
            lines.push(format!("{id} {:?} {:?} {profile:?} {live:?}", job.state, job.deadline));
        }
        lines.extend(self.executions.iter().map(|(id, job)| format!("{id} of {job}")));
        lines.extend(self.keys.iter().map(|(key, known)| format!("key {key:x} {known:?}")));
        for (id, worker) in &self.workers {
            let status = match worker.record.status {
                WorkerStatus::Expected => WorkerStatus::Ready,
                known => known,
            };
            let record = WorkerRecord { status, ..(*worker.record).clone() };
            lines.push(format!("{id} {record:?} {:?} {:?}", worker.jobs, worker.used));
        }
        for view in self.queues.view() {
            // Who of them waits for a key is found out anew, so `oldest` may differ.
            let counts = (view.version, view.waiting, view.running);
            lines.push(format!("queue {} {counts:?} {:?}", view.name, view.settings));
        }
        for (id, schedule) in self.schedules.iter() {
            let mut runs = schedule.runs.clone();
            runs.sort_unstable();
            lines.push(format!("{id} {} {:?} {runs:?}", schedule.name, schedule.state));
        }
        for (id, backfill) in &self.schedules.backfills {
            let mut runs = backfill.runs.clone();
            runs.sort_unstable();
            lines.push(format!("{id} {:?} {:?} {runs:?}", backfill.head, backfill.state));
        }
        self.digest_workflows(&mut lines);
        lines.sort_unstable();
        lines
    }
}

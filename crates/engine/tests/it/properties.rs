//! Property: whatever the order of events, no job is lost or runs twice at the same time, and every job ends.
//!
//! `Step` is a random event: submissions, workers that join, disconnect and return, starts and ends of tasks,
//! cancels, restarts of the engine, and time. `World` plays the clients and workers, and records each start
//! as its task would have done, independently of the rows. `check_safety` compares the two after each step.
//! `calm_down` ends all faults; then every job must end.
//!
//! The second property plays the same steps twice and compares the rows. Schedules and workflows have
//! properties of their own, in `ledger_properties`, `workflow::properties` and `workflow::liveness`.

use std::collections::{BTreeMap, BTreeSet};

use engine::Report;
use engine::input::ExecutionEnd;
use model::record::Outcome;
use model::spec::Delivery;
use model::worker::Admission;
use model::{ExecutionId, Fence, JobId, JobStatus, WorkerId};
use proptest::prelude::*;

use crate::scenario::{Scenario, finished};

/// One event; numbers select among the existing objects.
#[derive(Debug, Clone)]
enum Step {
    Submit { delivery: u8, retries: u32, key: Option<u8>, delay: u64, concurrency: bool },
    Join,
    Silence(usize),
    Rejoin(usize),
    Take(usize),
    End(usize, u8),
    Cancel(usize),
    Pass(u64),
    Restart,
    Admit(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..3, 0u32..3, prop::option::of(0u8..4), 0u64..8, any::<bool>()).prop_map(
            |(delivery, retries, key, delay, concurrency)| Step::Submit { delivery, retries, key, delay, concurrency }
        ),
        2 => Just(Step::Join),
        2 => any::<usize>().prop_map(Step::Silence),
        2 => any::<usize>().prop_map(Step::Rejoin),
        8 => any::<usize>().prop_map(Step::Take),
        8 => (any::<usize>(), 0u8..6).prop_map(|(i, how)| Step::End(i, how)),
        2 => any::<usize>().prop_map(Step::Cancel),
        4 => (1u64..9).prop_map(Step::Pass),
        1 => Just(Step::Restart),
        1 => (any::<usize>(), 0u8..3).prop_map(|(i, a)| Step::Admit(i, a)),
    ]
}

/// Plays the clients and workers, and checks safety.
struct World {
    t: Scenario,
    /// Starts of each job, as its task would have recorded them.
    starts: BTreeMap<JobId, Vec<(ExecutionId, Fence)>>,
    /// Tasks that are running, or are frozen on a silent worker.
    alive: BTreeMap<ExecutionId, (JobId, WorkerId, Fence)>,
    submitted: BTreeSet<JobId>,
}

impl World {
    fn new() -> Self {
        Self {
            t: Scenario::new(),
            starts: BTreeMap::new(),
            alive: BTreeMap::new(),
            submitted: BTreeSet::new(),
        }
    }

    fn pick<T: Copy>(items: &[T], index: usize) -> Option<T> {
        (!items.is_empty()).then(|| items[index % items.len()])
    }

    fn workers(&self, connected: bool) -> Vec<WorkerId> {
        let players = self.t.players.iter().filter(|(_, p)| p.session.is_some() == connected);
        players.map(|(&id, _)| id).collect()
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Submit { delivery, retries, key, delay, concurrency } => {
                let delivery = [Delivery::AtLeastOnce, Delivery::AtMostOnce, Delivery::ExactlyOnce]
                    [usize::from(delivery)];
                let mut job = self.t.job().delivery(delivery).retries(retries).cpu(1_000);
                if let Some(key) = key {
                    job = job.key(key.into(), key.into());
                }
                if delay > 0 {
                    job = job.in_seconds(delay);
                }
                if concurrency {
                    job = job.concurrency("k", 2);
                }
                let id = job.submit();
                self.submitted.insert(id);
            }
            Step::Join => {
                if self.t.players.len() < 4 {
                    self.t.worker().cpu(3_000).join();
                }
            }
            Step::Silence(i) => {
                if let Some(worker) = Self::pick(&self.workers(true), i) {
                    self.t.silence(worker);
                }
            }
            Step::Rejoin(i) => {
                if let Some(worker) = Self::pick(&self.workers(false), i) {
                    self.t.rejoin(worker);
                }
            }
            Step::Take(i) => self.take(i),
            Step::End(i, how) => self.end(i, how),
            Step::Cancel(i) => {
                let jobs: Vec<_> = self.submitted.iter().copied().collect();
                if let Some(job) = Self::pick(&jobs, i) {
                    let _ = self.t.cancel(job);
                }
            }
            Step::Pass(seconds) => self.t.pass(seconds),
            Step::Restart => self.t.restart(),
            Step::Admit(i, admission) => {
                if let Some(worker) = Self::pick(&self.workers(true), i) {
                    let all = [Admission::Open, Admission::Cordoned, Admission::Draining];
                    self.t.admit(worker, all[usize::from(admission)]);
                }
            }
        }
        self.obey_stops();
    }

    fn take(&mut self, index: usize) {
        // A worker starts nothing once its lease may have ended.
        let players = self.t.players.values().filter(|p| p.session.is_some());
        let jobs: Vec<_> = players.flat_map(|p| p.assigned.iter().map(|a| a.job)).collect();
        let Some(job) = Self::pick(&jobs, index) else { return };
        let (worker, assignment) = self.t.take(job);
        let (execution, fence) = (assignment.execution, assignment.fence);
        self.starts.entry(job).or_default().push((execution, fence));
        // Tasks on a lost worker are frozen, and a frozen task is not running.
        let others = self.alive.values().filter(|(j, w, _)| *j == job && self.t.players[w].session.is_some());
        assert_eq!(others.count(), 0, "I8: {job} runs twice at once");
        self.alive.insert(execution, (job, worker, fence));
        self.t.report(worker, execution, fence, Report::Started);
    }

    fn end(&mut self, index: usize, how: u8) {
        let alive: Vec<_> = self.alive.keys().copied().collect();
        let Some(execution) = Self::pick(&alive, index) else { return };
        let report = match how {
            0 | 1 => finished(ExecutionEnd::Succeeded, Some(0)),
            2 => finished(ExecutionEnd::Failed, Some(1)),
            3 => finished(ExecutionEnd::TimedOut, None),
            4 => finished(ExecutionEnd::Interrupted, None),
            _ => Report::StartFailed { outcome: Outcome::default() },
        };
        self.finish(execution, report);
    }

    fn finish(&mut self, execution: ExecutionId, report: Report) {
        let (_, worker, fence) = self.alive[&execution];
        if self.t.players[&worker].session.is_some() {
            self.alive.remove(&execution);
            self.t.report(worker, execution, fence, report);
        }
    }

    /// Workers follow their instructions. A worker without the execution promises never to start it.
    fn obey_stops(&mut self) {
        for worker in self.workers(true) {
            let player = self.t.players.get_mut(&worker).unwrap();
            for (execution, fence) in std::mem::take(&mut player.stopped) {
                let player = self.t.players.get_mut(&worker).unwrap();
                if self.alive.contains_key(&execution) {
                    self.finish(execution, finished(ExecutionEnd::Stopped, None));
                } else if let std::collections::btree_map::Entry::Vacant(entry) = player.held.entry(execution)
                {
                    entry.insert((fence, false));
                    player.assigned.retain(|a| a.execution != execution);
                    let reason = "stopped before it started".into();
                    self.t.report(worker, execution, fence, Report::Refused { reason });
                }
            }
        }
    }

    fn check_safety(&self) {
        for job in &self.submitted {
            assert!(self.t.rows.jobs.contains_key(job), "I1: {job} is lost");
        }
        assert_eq!(self.t.rows.jobs.len(), self.submitted.len(), "I3: a job was invented");
        for (job, starts) in &self.starts {
            assert!(starts.is_sorted_by(|a, b| a.1 < b.1), "I10: a fence of {job} does not grow");
            let (head, state) = &self.t.rows.jobs[job];
            if head.spec.delivery == Delivery::AtMostOnce {
                // A failed start ran no part of the task; only this test counts it as a start.
                let started = starts.len() - state.start_failures as usize;
                assert!(started <= 1, "I7: {job} was started {started} times");
            }
        }
        for (job, (head, state)) in &self.t.rows.jobs {
            assert!(state.run_failures <= head.spec.retry.max_retries + 1, "I12: {job}");
            let ends: Vec<_> = self.t.rows.executions.values().filter(|e| e.job == *job).collect();
            let accepted = ends.iter().filter(|e| e.status == model::ExecutionStatus::Succeeded).count();
            assert_eq!(accepted, usize::from(state.status == JobStatus::Succeeded), "I9: {job}");
            let numbers: BTreeSet<_> = ends.iter().map(|e| e.number).collect();
            assert_eq!(numbers, (1..=state.executions).collect(), "I5: {job}");
            assert!(
                state.history.windows(2).all(|w| w[1].from == Some(w[0].to) && w[0].at <= w[1].at),
                "I4: {job}"
            );
        }
    }

    /// Ends the faults: every worker returns and every task succeeds. Then every job ends.
    fn calm_down(&mut self) {
        self.t.worker().cpu(3_000).join();
        for _ in 0..200 {
            for worker in self.workers(false) {
                self.t.rejoin(worker);
            }
            for worker in self.workers(true) {
                self.t.admit(worker, Admission::Open);
            }
            self.obey_stops();
            while self.t.players.values().any(|p| p.session.is_some() && !p.assigned.is_empty()) {
                self.take(0);
            }
            for execution in self.alive.keys().copied().collect::<Vec<_>>() {
                self.finish(execution, finished(ExecutionEnd::Succeeded, Some(0)));
            }
            if self.t.rows.jobs.values().all(|(_, state)| state.status.is_final()) {
                return;
            }
            self.t.pass(3);
        }
        let stuck: Vec<_> = self.t.rows.jobs.iter().filter(|(_, (_, s))| !s.status.is_final()).collect();
        panic!("I26: these never end: {stuck:#?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 5_000, ..ProptestConfig::default() })]

    /// A10, D5, D7. Safety during faults, liveness once they end.
    #[test]
    fn no_order_of_events_loses_or_repeats_a_job(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.apply(step);
            world.check_safety();
        }
        world.calm_down();
        world.check_safety();
    }

    /// I29. The same inputs give the same rows, to the last bit.
    #[test]
    fn the_same_inputs_give_the_same_outputs(steps in prop::collection::vec(step(), 1..60)) {
        let play = || {
            let mut world = World::new();
            for step in &steps {
                world.apply(step);
            }
            format!("{:?}{:?}{:?}", world.t.rows.jobs, world.t.rows.executions, world.t.rows.events)
        };
        prop_assert_eq!(play(), play());
    }
}

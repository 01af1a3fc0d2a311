//! Samples of queues and workers for the statistics.
//!
//! Counts follow from transitions; levels (waiting and running jobs, allocated resources) are only sampled. A timer
//! takes the samples ([`Statistics`](crate::statistics::Statistics) decides when). They change nothing else: an engine
//! that samples decides the same as one that does not.

use std::sync::Arc;

use model::JobStatus;
use model::statistics::{Level, Subject};
use model::worker::WorkerStatus;

use crate::context::Context;
use crate::jobs::Jobs;
use crate::timer::Timer;

impl Jobs {
    /// Samples all levels, and arms the next sample. Costs O(queues + workers).
    pub(crate) fn sample_levels(&self, cx: &mut Context) {
        if !cx.statistics.is_sample_due(cx.steady) {
            return;
        }
        if cx.holds_new_work {
            return cx.statistics.cancel_sample();
        }
        let mut levels = self.queue_levels(cx);
        levels.extend(self.worker_levels());
        let mut all = Level::default();
        for (_, level) in &levels {
            all.slots += level.slots;
            all.cpu.0 = all.cpu.0.saturating_add(level.cpu.0);
            all.memory.0 = all.memory.0.saturating_add(level.memory.0);
            all.allocated_cpu.0 = all.allocated_cpu.0.saturating_add(level.allocated_cpu.0);
            all.allocated_memory.0 = all.allocated_memory.0.saturating_add(level.allocated_memory.0);
            all.oldest_waiting = all.oldest_waiting.max(level.oldest_waiting);
        }
        let count = |status| self.live_counts().get(&status).copied().unwrap_or_default();
        (all.waiting, all.running) = (count(JobStatus::Waiting), count(JobStatus::Running));
        levels.push((Subject::All, all));
        cx.statistics.sample(levels);
        self.arm_sample(cx);
    }

    /// Arms the next sample, if jobs wait or run or anything was counted since the last one. While the store is full,
    /// nothing is sampled: the reserved space is for running jobs.
    pub(crate) fn arm_sample(&self, cx: &mut Context) {
        if !cx.config.samples_levels || cx.holds_new_work {
            return;
        }
        let is_busy = [JobStatus::Waiting, JobStatus::Running]
            .iter()
            .any(|status| self.live_counts().get(status).is_some_and(|&count| count > 0));
        if let Some(at) = cx.statistics.plan_sample(cx.steady, is_busy) {
            cx.steady_timers.arm(at, Timer::SampleLevels);
        }
    }

    fn queue_levels(&self, cx: &Context) -> Vec<(Subject, Level)> {
        let queues = self.queue_views().into_iter().map(|queue| {
            let level = Level {
                waiting: queue.waiting,
                running: queue.running,
                oldest_waiting: queue.oldest.map(|since| cx.now.since(since)).unwrap_or_default(),
                ..Level::default()
            };
            (Subject::Queue(Arc::from(queue.name)), level)
        });
        queues.collect()
    }

    fn worker_levels(&self) -> impl Iterator<Item = (Subject, Level)> {
        let connected = self.workers().filter(|worker| worker.record.status != WorkerStatus::Lost);
        connected.map(|worker| {
            let capacity = &worker.record.capacity;
            let level = Level {
                running: worker.jobs.len() as u64,
                slots: u64::from(capacity.slots),
                allocated_cpu: worker.used.cpu,
                cpu: capacity.cpu,
                allocated_memory: worker.used.memory,
                memory: capacity.memory,
                ..Level::default()
            };
            (Subject::Worker(worker.record.id), level)
        })
    }
}

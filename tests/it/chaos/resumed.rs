//! Measures the time until work resumes after a fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::until;
use model::Timestamp;
use sim::dice::Dice;
use sim::history::{Answer, What};

use super::{RECOVERY, Storm};

/// Times from the end of a fault, or from the kill of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resumed {
    accepted: Duration,
    started: Duration,
}

impl Storm {
    /// Injects a fault, which returns the start of the measurement, and returns the measured times. Ten jobs a
    /// second are submitted meanwhile, because other clients wait for their jobs to end.
    pub(super) async fn resumes_after(
        &mut self,
        number: u64,
        fault: impl AsyncFnOnce(&mut Self) -> Timestamp,
    ) -> Resumed {
        let enough = Arc::new(AtomicBool::new(false));
        let dice = Dice::new(self.seed, 1_000 + number);
        let probe = tokio::spawn(self.load.clone().probe(dice, Arc::clone(&enough)));
        let since = fault(self).await;
        let resumed = self.until_resumed(since).await;
        enough.store(true, Ordering::Relaxed);
        probe.await.expect("every request was answered eventually");
        resumed
    }

    /// Waits until a job was accepted and a task was started after that time.
    pub(super) async fn until_resumed(&self, since: Timestamp) -> Resumed {
        let recorder = &self.load.recorder;
        let accepted = |what: &What| matches!(what, What::Answered { answer: Answer::Submitted { .. }, .. });
        let (accepted, started) = until("work continues", RECOVERY, async || {
            let events = recorder.events();
            let accepted = events.iter().find(|event| event.at >= since && accepted(&event.what))?.at;
            let since_secs = since.as_micros() as f64 / 1e6;
            let lines = self.load.witness.lines();
            let starts = lines.iter().filter(|line| line.kind == "start").map(|line| line.at);
            let started = starts.filter(|at| *at >= since_secs).min_by(f64::total_cmp)?;
            Some((accepted, started - since_secs))
        })
        .await;
        Resumed { accepted: accepted.since(since).to_std(), started: Duration::from_secs_f64(started) }
    }

    pub(super) fn count(&mut self, fault: &str) {
        *self.nemesis.counts.entry(fault.into()).or_default() += 1;
    }
}

/// Prints the distribution of the times after `faults`, counted from `since`.
pub(super) fn show(faults: &str, since: &str, resumed: &[Resumed]) {
    let number = resumed.len();
    let show = |what: &str, mut times: Vec<Duration>| {
        times.sort_unstable();
        let at = |share: f64| times[((number as f64 * share).ceil() as usize).clamp(1, number) - 1];
        println!(
            "{number} {faults}, {what} after {since}: p50 {:?}, p99 {:?}, slowest {:?}",
            at(0.5),
            at(0.99),
            at(1.0),
        );
    };
    show("jobs were accepted", resumed.iter().map(|times| times.accepted).collect());
    show("tasks were started", resumed.iter().map(|times| times.started).collect());
}

//! An execution is over: by its own end, by a refusal, or with its worker.
//!
//! [`Engine::close_execution`] ends the execution's row and frees what it held; what becomes of the
//! job follows from how it ended and from the job's policies.

use model::record::{Files, Outcome, Usage};
use model::spec::{Backoff, Delivery, RetryPolicy};
use model::{Cause, Duration, ExecutionStatus, JobId, JobStatus, Timestamp};
use mutation::{Mutation, is_on};
use rand::{Rng, RngExt};

use super::About;
use super::unknown::lost_with_worker;
use crate::engine::Engine;
use crate::input::{How, Report};
use crate::timer::Timer;

/// What an execution's end means for its job, before its policies are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Succeeded,
    /// The job's own failure: it costs a retry.
    Failed(Cause),
    /// Not the job's fault: it costs nothing.
    Returned(Cause),
}

impl Engine {
    /// The caller has checked that the report is about the job's live execution.
    pub(crate) fn on_ended(&mut self, id: JobId, report: Report) {
        let live = self.jobs.get(&id).and_then(|job| Some((job, job.live.as_ref()?)));
        let started = live.and_then(|(_, live)| live.record.started_at);
        match report {
            Report::Started => {}
            Report::Refused { reason } if started.is_some() => {
                let outcome =
                    Outcome { error: Some("refused".into()), message: Some(reason), ..Outcome::default() };
                self.conclude(
                    id,
                    ExecutionStatus::Lost,
                    Verdict::Returned(Cause::Interrupted),
                    outcome,
                    None,
                );
            }
            Report::Refused { reason } => {
                let outcome =
                    Outcome { error: Some("refused".into()), message: Some(reason), ..Outcome::default() };
                self.conclude(id, ExecutionStatus::Refused, Verdict::Returned(Cause::Refused), outcome, None);
            }
            Report::StartFailed { outcome } => {
                let verdict = Verdict::Failed(Cause::StartFailed);
                self.conclude(id, ExecutionStatus::Failed, verdict, outcome, None);
            }
            Report::Finished { how, outcome, usage } => {
                let (status, verdict) = match how {
                    How::Succeeded => (ExecutionStatus::Succeeded, Verdict::Succeeded),
                    How::Failed => (ExecutionStatus::Failed, Verdict::Failed(Cause::RunFailed)),
                    How::TimedOut => (ExecutionStatus::Failed, Verdict::Failed(Cause::TimedOut)),
                    How::Stopped => (ExecutionStatus::Cancelled, Verdict::Returned(Cause::Interrupted)),
                    How::Interrupted => (ExecutionStatus::Lost, Verdict::Returned(Cause::Interrupted)),
                };
                self.conclude(id, status, verdict, outcome, Some(usage));
            }
        }
    }

    /// The worker of a started execution knows nothing of it any more.
    pub(crate) fn on_forgotten(&mut self, id: JobId) {
        let outcome = Outcome { error: Some("interrupted".into()), ..Outcome::default() };
        self.conclude(id, ExecutionStatus::Lost, Verdict::Returned(Cause::Interrupted), outcome, None);
    }

    /// The execution of a running job is lost with its worker.
    pub(crate) fn on_worker_lost(&mut self, id: JobId) {
        let outcome = lost_with_worker();
        self.conclude(id, ExecutionStatus::Lost, Verdict::Returned(Cause::WorkerLost), outcome, None);
    }

    /// A running job was restored without its execution: a lost row, which no commit of ours makes.
    pub(crate) fn on_execution_missing(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(&id) {
            self.queues.ended(job);
            let about = About { detail: Some("the execution was not in the store"), ..About::default() };
            if job.state.cancel_requested_at.is_some() {
                return self.end(id, JobStatus::Cancelled, Cause::CancelRequested, about);
            }
            self.give_back(id, ExecutionStatus::Lost, Cause::Interrupted, about);
        }
    }

    fn conclude(
        &mut self,
        id: JobId,
        status: ExecutionStatus,
        verdict: Verdict,
        mut outcome: Outcome,
        usage: Option<Usage>,
    ) {
        self.correct_start(id, usage);
        let ended_at = self.own_end(id, usage);
        let files = outcome.files.take();
        let Some(execution) = self.close_execution(id, status, &outcome, usage, files) else { return };
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let cancelled = job.state.cancel_requested_at.is_some();
        let said = job.state.outcome.take().filter(|_| cancelled).and_then(|before| before.message);
        let message = outcome.message.clone();
        job.state.outcome = Some(Box::new(outcome));
        let about = About { execution: Some(execution), detail: message.as_deref(), ended_at };
        match verdict {
            // A success may have something to tell as well, such as a checkpoint that was not saved.
            Verdict::Succeeded => self.end(id, JobStatus::Succeeded, Cause::Succeeded, about),
            // A cancelled job that failed, was stopped or was lost is what its user wanted it to be.
            _ if cancelled => {
                let about = About { detail: said.as_deref(), ..about };
                self.end(id, JobStatus::Cancelled, Cause::CancelRequested, about);
            }
            Verdict::Failed(cause) => self.fail(id, cause, about),
            Verdict::Returned(cause) => self.give_back(id, status, cause, about),
        }
    }

    /// Moves the start of the live execution back if its run time does not fit between its start and now: the start was
    /// reported late, or in one report with the end.
    fn correct_start(&mut self, id: JobId, usage: Option<Usage>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let (Some(live), Some(usage)) = (job.live.as_mut(), usage) else { return };
        let record = &mut live.record;
        let latest = (self.now - usage.run_time).max(record.assigned_at);
        let known = record.started_at;
        if known.is_some_and(|known| known <= latest) {
            return;
        }
        record.started_at = Some(latest);
        // The job started first with this execution, or with an earlier one.
        if job.state.started_at == known {
            job.state.started_at = Some(latest);
        }
    }

    /// When the task of the live execution was over by itself, which may be long before anybody could report it.
    fn own_end(&self, id: JobId, usage: Option<Usage>) -> Option<Timestamp> {
        let record = &self.jobs.get(&id)?.live.as_ref()?.record;
        let run_time = usage?.run_time;
        // A worker that measured nothing says zero.
        (run_time > Duration::ZERO).then_some((record.started_at? + run_time).min(self.now))
    }

    /// Ends the live execution of a job and frees what it held. Returns what it was.
    fn close_execution(
        &mut self,
        id: JobId,
        status: ExecutionStatus,
        outcome: &Outcome,
        usage: Option<Usage>,
        files: Option<Box<Files>>,
    ) -> Option<(u32, model::ExecutionId, model::WorkerId)> {
        let job = self.jobs.get_mut(&id)?;
        let live = job.live.take()?;
        let mut record = live.record;
        self.chores.disarm(live.remind_at, Timer::Remind(record.id));
        self.executions.swap_remove(&record.id);
        record.status = status;
        record.finished_at = Some(self.now);
        record.outcome = Some(outcome.clone());
        (record.usage, record.files) = (usage, files);
        if let Some(worker) = self.workers.get_mut(&record.worker) {
            worker.release(id, &job.profile.shape);
        }
        self.queues.ended(job);
        self.capacity_freed(record.worker);
        let about = (record.number, record.id, record.worker);
        self.pending.ended.push(record);
        Some(about)
    }

    /// A failure of the job's own: again after its backoff, if its policy lets it.
    fn fail(&mut self, id: JobId, cause: Cause, about: About<'_>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let policy = &job.profile.retry;
        let failures = if cause == Cause::StartFailed {
            job.state.start_failures += 1;
            job.state.start_failures
        } else {
            job.state.run_failures += 1;
            job.state.run_failures
        };
        let exit_code = job.state.outcome.as_ref().and_then(|o| o.exit_code);
        if !may_retry(policy, cause, failures, exit_code, job.profile.delivery) {
            return self.end(id, JobStatus::Failed, cause, about);
        }
        let wait = if is_on(Mutation::EngineSkipsBackoffs) {
            Duration::ZERO
        } else {
            backoff(&policy.backoff, failures, &mut self.rng)
        };
        self.wait_before_retry(id, wait, cause, about);
    }

    /// An end that is not the job's fault: again, elsewhere if there is an elsewhere, at no cost,
    /// unless it may never be started twice and may have been started.
    pub(super) fn give_back(&mut self, id: JobId, status: ExecutionStatus, cause: Cause, about: About<'_>) {
        let Some(job) = self.jobs.get(&id) else { return };
        let never_started = status == ExecutionStatus::Refused;
        let may_run_again =
            job.profile.delivery != Delivery::AtMostOnce || is_on(Mutation::EngineRepeatsAtMostOnce);
        if !may_run_again && !never_started {
            return self.end(id, JobStatus::Failed, Cause::OutcomeUnknown, about);
        }
        let given_back =
            job.state.executions.saturating_sub(job.state.run_failures + job.state.start_failures);
        match pause(given_back) {
            Duration::ZERO => {
                self.step(id, JobStatus::Waiting, cause, about);
                self.enqueue(id);
                self.expire_if_late(id);
            }
            wait => self.wait_before_retry(id, wait, cause, about),
        }
    }

    fn wait_before_retry(&mut self, id: JobId, wait: Duration, cause: Cause, about: About<'_>) {
        let due_at = self.now + wait;
        if let Some(job) = self.jobs.get_mut(&id) {
            job.state.due_at = due_at;
        }
        self.agenda.arm(due_at, Timer::Due(id));
        self.step(id, JobStatus::Retrying, cause, about);
    }
}

/// The wait after the nth execution that ended by no fault of the job. The first few cost nothing;
/// a job that brings down every worker it comes to must not do so in a tight loop.
fn pause(given_back: u32) -> Duration {
    const AT_ONCE: u32 = 3;
    const LONGEST: Duration = Duration::from_secs(60);
    match given_back.checked_sub(AT_ONCE + 1) {
        None => Duration::ZERO,
        Some(doublings) => Duration::from_secs(1 << doublings.min(6)).min(LONGEST),
    }
}

/// Whether a failure may be followed by another try.
///
/// `failures` counts those of this kind, this one included. What runs at most once is not tried
/// again once it ran.
fn may_retry(
    policy: &RetryPolicy,
    cause: Cause,
    failures: u32,
    exit_code: Option<i32>,
    delivery: Delivery,
) -> bool {
    if cause == Cause::StartFailed {
        return failures <= policy.max_start_retries;
    }
    let wanted = match exit_code {
        Some(code) if cause == Cause::RunFailed => {
            !policy.final_exit_codes.contains(&code)
                && (policy.retry_exit_codes.is_empty() || policy.retry_exit_codes.contains(&code))
        }
        _ => policy.retry_exit_codes.is_empty(),
    };
    let max_retries = policy.max_retries + u32::from(is_on(Mutation::EngineRetriesOnceMore));
    wanted && delivery != Delivery::AtMostOnce && failures <= max_retries
}

/// The wait after failure number `failures`, from 1: exponential, bounded, and drawn a little
/// shorter or longer, so that jobs that failed together do not come back together.
pub(crate) fn backoff(policy: &Backoff, failures: u32, rng: &mut impl Rng) -> Duration {
    let exponent = f64::from(failures.saturating_sub(1).min(1_000));
    let max = millis_f64(policy.max);
    let plain = (millis_f64(policy.initial) * policy.factor.powf(exponent)).min(max);
    let drawn = plain * (1.0 + policy.jitter * (rng.random::<f64>() * 2.0 - 1.0));
    let millis = drawn.clamp(0.0, max * 2.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a day or two")]
    Duration::from_millis(millis as u64)
}

#[expect(clippy::cast_precision_loss, reason = "at most a day in milliseconds")]
fn millis_f64(duration: Duration) -> f64 {
    duration.as_millis() as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    proptest! {
        /// I12. The wait before retry k lies within the jitter around its plain value.
        #[test]
        fn a_backoff_stays_within_its_jitter_and_its_maximum(
            initial in 0u64..10_000, factor in 1.0f64..4.0, more in 0u64..100_000, jitter in 0.0f64..1.0,
            failures in 1u32..2_000, seed: u64,
        ) {
            let policy = Backoff {
                initial: Duration::from_millis(initial), factor, max: Duration::from_millis(initial + more), jitter,
            };
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
            let drawn = millis_f64(backoff(&policy, failures, &mut rng));
            let plain = (millis_f64(policy.initial) * factor.powf(f64::from(failures - 1).min(1_000.0)))
                .min(millis_f64(policy.max));
            prop_assert!(drawn >= plain * (1.0 - jitter) - 1.0 && drawn <= plain * (1.0 + jitter));
            let _ = Timestamp::default() + Duration::from_millis(initial);
        }
    }
}

//! The end of an execution: reported by its worker, refused, or lost with its worker.
//!
//! [`Jobs::close_execution`] ends the row of the execution and frees its resources. What happens to the job
//! depends on how the execution ended and on the job's policies: final status, retry after a backoff, or
//! return to the queue.
//!
//! # Invariants
//! - Only failures of the job itself count as retries. Refusals, drains, preemptions, lost workers and interruptions do
//!   not. The latter two count as losses, with a bound of their own.
//! - An `at_most_once` job is never started again once an execution may have started.
//! - A job with a requested cancel ends as `cancelled`, unless its execution succeeded. The same holds for a job that
//!   its completion deadline stops.
//!
//! # Cost
//! O(log n) for each end of an execution.

use model::record::{Files, Outcome, Usage};
use model::spec::{Backoff, Delivery, RetryPolicy};
use model::{Cause, Duration, ExecutionStatus, JobId, JobStatus, Timestamp};
use mutation::{Mutation, is_on};
use rand::{Rng, RngExt};

use super::TransitionDetails;
use super::replica::REPLICA_EXECUTIONS_MAX;
use super::unknown::lost_with_worker;
use crate::context::Context;
use crate::input::{ExecutionEnd, Report};
use crate::jobs::{Job, Jobs};
use crate::timer::Timer;

/// Effect of an execution's end on its job, before the job's policies are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Succeeded,
    /// The job itself failed: counts as a retry.
    Failed(Cause),
    /// Ended for a reason outside the job: does not count as a retry.
    Returned(Cause),
}

impl Job {
    /// Whether one more lost execution ends the job.
    pub(super) fn is_last_loss(&self) -> bool {
        self.state.losses >= self.profile.retry.max_lost && !is_on(Mutation::EngineReplacesLostForever)
    }

    /// Returns the number of executions that ended for another reason than a failure, a loss or a preemption, with the
    /// newest one.
    fn returns(&self) -> u32 {
        let state = &self.state;
        let preemptions = state.history.iter().filter(|entry| entry.cause == Cause::Preempted).count();
        let others = state.run_failures + state.start_failures + state.losses;
        state.executions.saturating_sub(others + u32::try_from(preemptions).unwrap_or(u32::MAX))
    }

    /// Returns how the job must end after a request to cancel it, or after its completion deadline.
    pub(super) fn requested_end(&self) -> Option<(JobStatus, Cause)> {
        if self.state.cancel_requested_at.is_some() {
            return Some((JobStatus::Cancelled, Cause::CancelRequested));
        }
        let status = self.overdue_status().filter(|_| !is_on(Mutation::EngineRetriesOverdueJobs))?;
        Some((status, Cause::FinishDeadlinePassed))
    }
}

impl Jobs {
    pub(crate) fn on_ended(&mut self, cx: &mut Context, id: JobId, report: Report) {
        let live = self.all.get(&id).and_then(|job| Some((job, job.live.as_ref()?)));
        let started = live.and_then(|(_, live)| live.record.started_at);
        let is_replica = live.is_some_and(|(job, _)| job.replica.is_some());
        let is_preempted = live.is_some_and(|(_, live)| live.record.preempted_by.is_some());
        match report {
            Report::Started => {}
            Report::Refused { reason } if started.is_some() => {
                let outcome =
                    Outcome { error: Some("refused".into()), message: Some(reason), ..Outcome::default() };
                self.conclude(
                    cx,
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
                self.conclude(
                    cx,
                    id,
                    ExecutionStatus::Refused,
                    Verdict::Returned(if is_preempted { Cause::Preempted } else { Cause::Refused }),
                    outcome,
                    None,
                );
            }
            Report::StartFailed { outcome } => {
                let verdict = Verdict::Failed(Cause::StartFailed);
                self.conclude(cx, id, ExecutionStatus::Failed, verdict, outcome, None);
            }
            Report::Finished { how, outcome, usage } => {
                let (status, verdict) = match how {
                    ExecutionEnd::Succeeded if is_replica && !is_on(Mutation::EngineEndsExitedReplicas) => {
                        (ExecutionStatus::Succeeded, Verdict::Failed(Cause::ReplicaExited))
                    }
                    ExecutionEnd::Succeeded => (ExecutionStatus::Succeeded, Verdict::Succeeded),
                    ExecutionEnd::Failed => (ExecutionStatus::Failed, Verdict::Failed(Cause::RunFailed)),
                    ExecutionEnd::TimedOut => (ExecutionStatus::Failed, Verdict::Failed(Cause::TimedOut)),
                    ExecutionEnd::Stopped => {
                        let cause = if is_preempted { Cause::Preempted } else { Cause::Interrupted };
                        (ExecutionStatus::Cancelled, Verdict::Returned(cause))
                    }
                    ExecutionEnd::Interrupted => {
                        (ExecutionStatus::Lost, Verdict::Returned(Cause::Interrupted))
                    }
                };
                self.conclude(cx, id, status, verdict, outcome, Some(usage));
            }
        }
    }

    /// Handles a started execution that its worker no longer knows.
    pub(crate) fn on_execution_unknown_to_worker(&mut self, cx: &mut Context, id: JobId) {
        let outcome = Outcome { error: Some("interrupted".into()), ..Outcome::default() };
        self.conclude(cx, id, ExecutionStatus::Lost, Verdict::Returned(Cause::Interrupted), outcome, None);
    }

    /// Ends the execution of a running job whose worker is lost.
    pub(crate) fn end_lost_execution(&mut self, cx: &mut Context, id: JobId) {
        let outcome = lost_with_worker();
        self.conclude(cx, id, ExecutionStatus::Lost, Verdict::Returned(Cause::WorkerLost), outcome, None);
    }

    /// Handles a running job that was restored without its execution. No commit of the engine causes this; a
    /// row was lost.
    pub(crate) fn on_execution_missing(&mut self, cx: &mut Context, id: JobId) {
        if let Some(job) = self.all.get(&id) {
            self.queues.on_execution_ended(job.queued(id));
            let about = TransitionDetails {
                detail: Some("the execution was not in the store"),
                ..TransitionDetails::default()
            };
            if let Some((status, cause)) = job.requested_end() {
                return self.end(cx, id, status, cause, about);
            }
            self.requeue(cx, id, ExecutionStatus::Lost, Cause::Interrupted, about);
        }
    }

    fn conclude(
        &mut self,
        cx: &mut Context,
        id: JobId,
        status: ExecutionStatus,
        verdict: Verdict,
        mut outcome: Outcome,
        usage: Option<Usage>,
    ) {
        self.correct_start(cx, id, usage.as_ref());
        self.forget_failures_before_stable_run(cx, id);
        let ended_at = self.task_end(cx, id, usage.as_ref());
        let files = outcome.files.take();
        let preempted_by = self.preempted_by(id).filter(|_| verdict == Verdict::Returned(Cause::Preempted));
        let Some(execution) = self.close_execution(cx, id, status, &outcome, usage, files) else { return };
        let Some(job) = self.all.get_mut(&id) else { return };
        let requested = job.requested_end();
        let before = job.state.outcome.take().filter(|_| requested.is_some());
        let reason = before.and_then(|before| before.message);
        if matches!(requested, Some((_, Cause::FinishDeadlinePassed))) && verdict != Verdict::Succeeded {
            // The execution has the exit code, with which the task answered the stop.
            outcome.error = Some(Cause::FinishDeadlinePassed.as_str().into());
            outcome.message.clone_from(&reason);
            outcome.exit_code = None;
        }
        let message = match preempted_by {
            Some(by) => Some(format!("preempted by {by}").into()),
            None => outcome.message.clone(),
        };
        job.state.outcome = Some(Box::new(outcome));
        let about = TransitionDetails { execution: Some(execution), detail: message.as_deref(), ended_at };
        match verdict {
            // A success may also have a message, for example that a checkpoint was not saved.
            Verdict::Succeeded => self.end(cx, id, JobStatus::Succeeded, Cause::Succeeded, about),
            // The user or the completion deadline wanted the job to end: so does a failure, stop or loss after that.
            _ => match requested {
                Some((status, cause)) => {
                    let about = TransitionDetails { detail: reason.as_deref(), ..about };
                    self.end(cx, id, status, cause, about);
                }
                None => match verdict {
                    Verdict::Failed(cause) => self.fail(cx, id, cause, about),
                    Verdict::Returned(cause) => self.requeue(cx, id, status, cause, about),
                    Verdict::Succeeded => {}
                },
            },
        }
    }

    /// Moves the start of the live execution back if its run time does not fit between its recorded start and
    /// now. This happens when the start was reported late, or in one report with the end.
    fn correct_start(&mut self, cx: &mut Context, id: JobId, usage: Option<&Usage>) {
        let Some(job) = self.all.get_mut(&id) else { return };
        let (Some(live), Some(usage)) = (job.live.as_mut(), usage) else { return };
        let record = &mut live.record;
        let latest = (cx.now - usage.run_time).max(record.assigned_at);
        let known = record.started_at;
        if known.is_some_and(|known| known <= latest) {
            return;
        }
        record.started_at = Some(latest);
        if known.is_none() {
            return job.record_start(cx, latest);
        }
        // The job started first with this execution, or with an earlier one.
        if job.state.started_at == known {
            job.state.started_at = Some(latest);
        }
    }

    /// Returns when the task of the live execution ended, which may be long before its worker could report
    /// it.
    fn task_end(&self, cx: &Context, id: JobId, usage: Option<&Usage>) -> Option<Timestamp> {
        let record = &self.all.get(&id)?.live.as_ref()?.record;
        let run_time = usage?.run_time;
        // A worker that measured no run time reports zero.
        (run_time > Duration::ZERO).then_some((record.started_at? + run_time).min(cx.now))
    }

    /// Ends the live execution of a job and frees its resources. Returns its number, id and worker.
    fn close_execution(
        &mut self,
        cx: &mut Context,
        id: JobId,
        status: ExecutionStatus,
        outcome: &Outcome,
        usage: Option<Usage>,
        files: Option<Box<Files>>,
    ) -> Option<(u32, model::ExecutionId, model::WorkerId)> {
        let job = self.all.get_mut(&id)?;
        let live = job.live.take()?;
        let mut record = live.record;
        cx.steady_timers.disarm(live.remind_at, Timer::Remind(record.id));
        self.executions.swap_remove(&record.id);
        record.status = status;
        record.finished_at = Some(cx.now);
        record.outcome = Some(outcome.clone());
        if let Some(usage) = &usage {
            cx.statistics.count_run(&job.source, record.worker, usage.run_time);
        }
        (record.usage, record.files) = (usage, files);
        self.queues.on_execution_ended(job.queued(id));
        self.deallocate(id, record.worker);
        self.capacity_freed(record.worker);
        let about = (record.number, record.id, record.worker);
        self.ended.push(record);
        Some(about)
    }

    /// Handles a failure of the job itself: retries it after its backoff, if the policy allows.
    fn fail(&mut self, cx: &mut Context, id: JobId, cause: Cause, about: TransitionDetails<'_>) {
        let Some(job) = self.all.get_mut(&id) else { return };
        let policy = &job.profile.retry;
        let failures = if cause == Cause::StartFailed {
            job.state.start_failures += 1;
            job.state.start_failures
        } else {
            job.state.run_failures += 1;
            job.state.run_failures
        };
        let exit_code = job.state.outcome.as_ref().and_then(|o| o.exit_code);
        let is_spent = job.replica.is_some() && job.state.executions >= REPLICA_EXECUTIONS_MAX;
        if is_spent || !may_retry(policy, cause, failures, exit_code, job.profile.delivery) {
            return self.end(cx, id, JobStatus::Failed, cause, about);
        }
        let wait = if is_on(Mutation::EngineSkipsBackoffs) {
            Duration::ZERO
        } else {
            backoff(&policy.backoff, failures, &mut cx.rng)
        };
        self.wait_before_retry(cx, id, wait, cause, about);
    }

    /// Returns a job to its queue after an end outside its control, without counting a retry. Prefers another
    /// worker. An `at_most_once` job that may have started fails instead.
    pub(super) fn requeue(
        &mut self,
        cx: &mut Context,
        id: JobId,
        status: ExecutionStatus,
        cause: Cause,
        about: TransitionDetails<'_>,
    ) {
        let Some(job) = self.all.get(&id) else { return };
        let never_started = status == ExecutionStatus::Refused;
        let may_run_again =
            job.profile.delivery != Delivery::AtMostOnce || is_on(Mutation::EngineRepeatsAtMostOnce);
        if !may_run_again && !never_started {
            return self.end(cx, id, JobStatus::Failed, Cause::OutcomeUnknown, about);
        }
        let is_loss = status == ExecutionStatus::Lost;
        if is_loss && job.is_last_loss() {
            return self.fail_after_losses(cx, id, about);
        }
        let Some(job) = self.all.get_mut(&id) else { return };
        let counts_preemption = cause == Cause::Preempted && is_on(Mutation::EngineCountsPreemptionsAsLosses);
        if is_loss || counts_preemption {
            job.state.losses += 1;
        }
        let wait = match cause {
            _ if is_loss => loss_delay(job.state.losses),
            Cause::Preempted => Duration::ZERO,
            _ => requeue_delay(job.returns()),
        };
        match wait {
            Duration::ZERO => {
                self.transition(cx, id, JobStatus::Waiting, cause, about);
                self.enqueue(cx, id);
                self.expire_if_late(cx, id);
            }
            wait => self.wait_before_retry(cx, id, wait, cause, about),
        }
    }

    /// Ends a job that was lost more often than its retry policy allows.
    fn fail_after_losses(&mut self, cx: &mut Context, id: JobId, about: TransitionDetails<'_>) {
        let Some(job) = self.all.get_mut(&id) else { return };
        job.state.losses += 1;
        let limit = job.profile.retry.max_lost;
        let outcome = job.state.outcome.get_or_insert_default();
        let last = outcome.message.as_deref().unwrap_or("its worker was lost");
        let message = match job.state.losses {
            1 => format!("the execution was lost, and `retry.max_lost` is {limit}: {last}"),
            losses => format!("{losses} executions were lost, and `retry.max_lost` is {limit}: {last}"),
        };
        outcome.error = Some(Cause::WorkerLost.as_str().into());
        outcome.message = Some(message.as_str().into());
        let about = TransitionDetails { detail: Some(&message), ..about };
        self.end(cx, id, JobStatus::Failed, Cause::WorkerLost, about);
    }

    fn wait_before_retry(
        &mut self,
        cx: &mut Context,
        id: JobId,
        wait: Duration,
        cause: Cause,
        about: TransitionDetails<'_>,
    ) {
        let due_at = cx.now + wait;
        let mut about = about;
        if let Some(job) = self.all.get_mut(&id) {
            job.state.due_at = due_at;
            about.detail = about.detail.map(|detail| short_detail(job.state.outcome.as_deref(), detail));
        }
        cx.wall_timers.arm(due_at, Timer::JobReady(id));
        self.transition(cx, id, JobStatus::Retrying, cause, about);
    }
}

/// Returns the detail of a retry: without the line of the output that says why the task failed. A history may have
/// hundreds of entries in memory, and the result of the execution has the line.
fn short_detail<'a>(outcome: Option<&Outcome>, detail: &'a str) -> &'a str {
    let error = outcome.and_then(|outcome| outcome.error.as_deref());
    match detail.split_once(": ") {
        Some((end, _)) if matches!(error, Some("exit_code" | "signal")) => end,
        _ => detail,
    }
}

/// Returns the delay after the nth execution that ended for a reason outside the job. The first few have no
/// delay; a job that crashes every worker must not do so in a tight loop.
fn requeue_delay(given_back: u32) -> Duration {
    const AT_ONCE: u32 = 3;
    const LONGEST: Duration = Duration::from_secs(60);
    match given_back.checked_sub(AT_ONCE + 1) {
        None => Duration::ZERO,
        Some(doublings) => Duration::from_secs(1 << doublings.min(6)).min(LONGEST),
    }
}

/// Returns the delay after the nth execution that was lost with its worker. The first one is replaced at once.
fn loss_delay(losses: u32) -> Duration {
    const FIRST_SECS: u64 = 10;
    const LONGEST: Duration = Duration::from_secs(300);
    match losses.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => Duration::from_secs(FIRST_SECS << doublings.min(5)).min(LONGEST),
    }
}

/// Returns whether a failure may be retried.
///
/// `failures` is the number of failures of this kind, including this one. A job with delivery `at_most_once`
/// is not retried once it ran.
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

/// Returns the delay after failure number `failures`, from 1: from the list, or growing exponentially up to a maximum.
/// It varies randomly, so that jobs that failed together do not retry together.
pub(crate) fn backoff(policy: &Backoff, failures: u32, rng: &mut impl Rng) -> Duration {
    let retry = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
    let (plain, max) = match policy.delays.get(retry).or(policy.delays.last()) {
        Some(&delay) => (millis_f64(delay), millis_f64(delay)),
        None => {
            let exponent = f64::from(failures.saturating_sub(1).min(1_000));
            let max = millis_f64(policy.max);
            ((millis_f64(policy.initial) * policy.factor.powf(exponent)).min(max), max)
        }
    };
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
        /// I12. The delay before retry k lies within the jitter around its value without jitter.
        #[test]
        fn a_backoff_stays_within_its_jitter_and_its_maximum(
            initial in 0u64..10_000, factor in 1.0f64..4.0, more in 0u64..100_000, jitter in 0.0f64..1.0,
            failures in 1u32..2_000, seed: u64,
        ) {
            let policy = Backoff {
                initial: Duration::from_millis(initial), factor, max: Duration::from_millis(initial + more), jitter,
                delays: Vec::new(),
            };
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
            let drawn = millis_f64(backoff(&policy, failures, &mut rng));
            let plain = (millis_f64(policy.initial) * factor.powf(f64::from(failures - 1).min(1_000.0)))
                .min(millis_f64(policy.max));
            prop_assert!(drawn >= plain * (1.0 - jitter) - 1.0 && drawn <= plain * (1.0 + jitter));
            let _ = Timestamp::default() + Duration::from_millis(initial);
        }
    }

    #[test]
    fn a_list_gives_each_delay_and_repeats_the_last_one() {
        let delays = [60, 300, 600].map(Duration::from_secs);
        let policy = Backoff { delays: delays.to_vec(), jitter: 0.0, ..Backoff::default() };
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(0);
        let drawn = [1, 2, 3, 4, 1_000].map(|failures| backoff(&policy, failures, &mut rng));
        assert_eq!(drawn, [delays[0], delays[1], delays[2], delays[2], delays[2]]);
    }

    #[test]
    fn the_delay_after_a_loss_grows_to_a_maximum() {
        let seconds = [1, 2, 3, 4, 5, 6, 7, 100].map(|losses| loss_delay(losses).as_millis() / 1_000);
        assert_eq!(seconds, [0, 10, 20, 40, 80, 160, 300, 300]);
    }
}

//! Upstream jobs: a job with `after` starts only after other jobs have ended as required.
//!
//! Such a job is `ready` until its last upstream job has ended, also if its own time is reached. An upstream job that
//! ends otherwise than required cancels it at once. That end is a signal like any other, so a chain of jobs is
//! released or cancelled link by link, without recursion.
//!
//! # Invariants
//! - `JobState::upstream` has the upstream jobs that have not ended. A job that has any is `ready`.
//! - [`Downstream`] has the same pairs for all live jobs, by upstream job.
//! - The end of a job and its effect on the jobs that wait for it are one commit. So after a restart, the upstream jobs of
//!   a live job are live. If the row of one is damaged, the job waits, and a user can cancel it.
//!
//! At most [`DOWNSTREAM_JOBS_MAX`] jobs wait for one job, which bounds that commit. The length of a chain, which a cancel
//! ends in one commit, has no limit.
//!
//! # Cost
//! O(log n) for each pair.

use std::collections::{BTreeMap, BTreeSet};

use model::limits::DOWNSTREAM_JOBS_MAX;
use model::record::Outcome;
use model::spec::UpstreamJob;
use model::{Cause, JobId, JobStatus, Refusal};
use mutation::{Mutation, is_on};
use thin_vec::ThinVec;

use super::TransitionDetails;
use crate::context::Context;
use crate::input::NewJob;
use crate::jobs::Jobs;
use crate::timer::Timer;

/// Jobs that wait for the end of others, by the job that has not ended.
#[derive(Debug, Default)]
pub(crate) struct Downstream(BTreeMap<JobId, BTreeSet<JobId>>);

impl Downstream {
    pub(crate) fn add(&mut self, job: JobId, upstream: &[UpstreamJob]) {
        for of in upstream {
            self.0.entry(of.job).or_default().insert(job);
        }
    }

    fn remove(&mut self, job: JobId, upstream: &[UpstreamJob]) {
        for of in upstream {
            if let Some(jobs) = self.0.get_mut(&of.job) {
                jobs.remove(&job);
                if jobs.is_empty() {
                    self.0.remove(&of.job);
                }
            }
        }
    }

    /// Removes and returns the jobs that wait for the end of `upstream`.
    fn take(&mut self, upstream: JobId) -> BTreeSet<JobId> {
        self.0.remove(&upstream).unwrap_or_default()
    }

    /// Returns the number of jobs that wait for the end of `upstream`.
    fn count(&self, upstream: JobId) -> usize {
        self.0.get(&upstream).map_or(0, BTreeSet::len)
    }

    pub(crate) fn contains(&self, upstream: JobId, job: JobId) -> bool {
        self.0.get(&upstream).is_some_and(|jobs| jobs.contains(&job))
    }

    /// Returns the number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }
}

/// What the upstream jobs of a new job mean for it.
pub(crate) struct Upstream {
    /// Upstream jobs that have not ended.
    open: ThinVec<UpstreamJob>,
    /// The first upstream job that ended otherwise than required, with its status.
    unmet: Option<(JobId, JobStatus)>,
}

impl Upstream {
    /// Whether nothing keeps the job from starting.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.unmet.is_none()
    }
}

impl Jobs {
    /// Checks the upstream jobs of the job with this index in its submission: the status of each must be known, and not
    /// too many jobs may wait for it. `waiting` counts those of the submission.
    pub(crate) fn check_upstream_jobs(
        &self,
        index: usize,
        new: &NewJob,
        waiting: &mut BTreeMap<JobId, usize>,
    ) -> Result<(), Refusal> {
        if is_on(Mutation::EngineAcceptsUnknownUpstreamJobs) {
            return Ok(());
        }
        for &UpstreamJob { job, .. } in &new.head.spec.after {
            let status = self.upstream_status(new, job).ok_or(Refusal::UpstreamJobNotFound { index, job })?;
            let count = waiting.entry(job).or_insert_with(|| self.downstream.count(job));
            if !status.is_final() && *count >= DOWNSTREAM_JOBS_MAX {
                return Err(Refusal::DownstreamJobLimit { index, job, limit: DOWNSTREAM_JOBS_MAX });
            }
            *count += 1;
        }
        Ok(())
    }

    fn upstream_status(&self, job: &NewJob, upstream: JobId) -> Option<JobStatus> {
        let ended = || job.ended.iter().find(|(id, _)| *id == upstream).map(|&(_, status)| status);
        self.all.get(&upstream).map(|job| job.state.status).or_else(ended)
    }

    pub(crate) fn upstream_of(&self, new: &NewJob) -> Upstream {
        let mut upstream = Upstream { open: ThinVec::new(), unmet: None };
        if is_on(Mutation::EngineIgnoresUpstreamJobs) {
            return upstream;
        }
        for &of in &new.head.spec.after {
            match self.upstream_status(new, of.job) {
                Some(status) if !status.is_final() => upstream.open.push(of),
                Some(status) if !of.condition.is_satisfied_by(status) => {
                    upstream.unmet.get_or_insert((of.job, status));
                }
                _ => {}
            }
        }
        upstream
    }

    /// Makes a new job wait for its upstream jobs, or cancels it.
    pub(crate) fn wait_for_upstream(&mut self, cx: &mut Context, id: JobId, upstream: Upstream) {
        let Some(job) = self.all.get_mut(&id) else { return };
        self.downstream.add(id, &upstream.open);
        job.state.upstream = upstream.open;
        if let Some((job, status)) = upstream.unmet {
            self.cancel_unsatisfied(cx, id, job, status);
        }
    }

    /// Starts or cancels the jobs that waited for the end of `id`.
    pub(crate) fn release_downstream(&mut self, cx: &mut Context, id: JobId, status: JobStatus) {
        for job in self.downstream.take(id) {
            if !is_on(Mutation::EngineForgetsDownstreamJobs) {
                self.on_upstream_ended(cx, job, id, status);
            }
        }
    }

    fn on_upstream_ended(&mut self, cx: &mut Context, id: JobId, upstream: JobId, status: JobStatus) {
        let now = cx.now;
        let Some(job) = self.all.get_mut(&id) else { return };
        let Some(position) = job.state.upstream.iter().position(|of| of.job == upstream) else { return };
        let condition = job.state.upstream.remove(position).condition;
        if !condition.is_satisfied_by(status) && !is_on(Mutation::EngineIgnoresUpstreamConditions) {
            return self.cancel_unsatisfied(cx, id, upstream, status);
        }
        if !job.state.upstream.is_empty() || job.state.due_at > now {
            return self.touch(cx, id);
        }
        // The job takes its place in the queue now, not with the jobs that waited there since its `run_at`.
        job.state.due_at = now;
        let cause = Cause::DependenciesSatisfied;
        self.transition(cx, id, JobStatus::Waiting, cause, TransitionDetails::default());
        self.enqueue(cx, id);
        self.expire_if_late(cx, id);
    }

    fn cancel_unsatisfied(&mut self, cx: &mut Context, id: JobId, upstream: JobId, status: JobStatus) {
        let detail = format!("upstream job `{upstream}` ended as {status}");
        if let Some(job) = self.all.get_mut(&id) {
            cx.wall_timers.disarm(job.state.due_at, Timer::JobReady(id));
            let message = Some(detail.as_str().into());
            job.state.outcome = Some(Box::new(Outcome { message, ..Outcome::default() }));
        }
        let about = TransitionDetails { detail: Some(&detail), ..TransitionDetails::default() };
        self.end(cx, id, JobStatus::Cancelled, Cause::DependencyNeverSatisfied, about);
    }

    /// Ends the waiting of a job for its upstream jobs.
    pub(crate) fn forget_upstream(&mut self, id: JobId) {
        let Some(job) = self.all.get_mut(&id) else { return };
        self.downstream.remove(id, &std::mem::take(&mut job.state.upstream));
    }
}

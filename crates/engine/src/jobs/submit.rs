//! A client submits jobs.

use std::sync::Arc;

use model::record::{Change, JobHead, JobState, KeyRecord};
use model::{Cause, Fence, JobId, JobStatus, Refusal, ShardId, Timestamp};
use mutation::{Mutation, is_on};
use rand::Rng;
use thin_vec::ThinVec;

use super::{Job, TransitionDetails};
use crate::context::Context;
use crate::input::NewJob;
use crate::jobs::IdempotencyEntry;
use crate::jobs::Jobs;
use crate::output::Submitted;
use crate::profile::Profile;
use crate::timer::Timer;

impl Jobs {
    /// Checks that no idempotency key was used for a different request.
    pub(crate) fn check_keys(&self, jobs: &[NewJob]) -> Result<(), Refusal> {
        let mut own: std::collections::BTreeMap<u128, u128> = std::collections::BTreeMap::new();
        for (index, key) in jobs.iter().enumerate().filter_map(|(i, job)| Some((i, job.key?))) {
            if let Some(known) = self.keys.get(&key.key).filter(|known| known.body != key.body) {
                return Err(Refusal::IdempotencyKeyReused { index, job: known.job });
            }
            if own.insert(key.key, key.body).is_some_and(|body| body != key.body) {
                return Err(Refusal::IdempotencyKeyRepeated { index });
            }
        }
        Ok(())
    }

    /// Creates a job, unless its idempotency key belongs to an earlier one.
    pub(crate) fn submit_one(&mut self, cx: &mut Context, new: &NewJob) -> Submitted {
        if let Some(known) = new.key.and_then(|key| self.keys.get(&key.key)) {
            return Submitted { job: known.job, new: false };
        }
        let id = match &new.head.origin {
            // A run is created in the shard of its schedule.
            Some(origin) => JobId::from_bits(cx.ids.next(cx.now, origin.schedule.shard(), cx.rng.next_u64())),
            None => self.new_job_id(cx, new.key.map(|key| key.key)),
        };
        if let Some(key) = new.key.filter(|_| !is_on(Mutation::EngineForgetsKeys)) {
            // The key of a job for next month must not expire next week.
            let run_at = new.head.spec.run_at.unwrap_or_default();
            let expires_at = cx.now.max(run_at) + cx.config.key_retention;
            self.keys.insert(key.key, IdempotencyEntry { body: key.body, job: id, expires_at });
            let record = KeyRecord { key: key.key, body: key.body, job: id, expires_at };
            cx.write(Change::Key(record));
        }
        self.create(cx, id, new);
        Submitted { job: id, new: true }
    }

    fn new_job_id(&mut self, cx: &mut Context, key: Option<u128>) -> JobId {
        // A key always leads to the same shard, whichever server receives the request.
        let shard = match key {
            Some(key) => ShardId(u16::try_from(key % u128::from(cx.shards)).unwrap_or_default()),
            None => {
                let index = usize::try_from(cx.rng.next_u32()).unwrap_or_default() % cx.owned.len().max(1);
                cx.owned.get(index).copied().unwrap_or_default()
            }
        };
        JobId::from_bits(cx.ids.next(cx.now, shard, cx.rng.next_u64()))
    }

    /// Creates the job of a firing; it is ready immediately.
    pub(crate) fn create_fired(
        &mut self,
        cx: &mut Context,
        id: JobId,
        head: &Arc<JobHead>,
        profile: Arc<Profile>,
        detail: Option<&str>,
    ) {
        self.insert_new(cx, id, head, profile, cx.now);
        self.transition(
            cx,
            id,
            JobStatus::Waiting,
            Cause::Fired,
            TransitionDetails { detail, ..TransitionDetails::default() },
        );
        self.enqueue(cx, id);
    }

    /// Creates the job of a step; it is ready immediately.
    pub(crate) fn create_step_job(
        &mut self,
        cx: &mut Context,
        id: JobId,
        head: &Arc<JobHead>,
        profile: Arc<Profile>,
    ) {
        self.insert_new(cx, id, head, profile, cx.now);
        self.transition(cx, id, JobStatus::Waiting, Cause::StepStarted, TransitionDetails::default());
        self.enqueue(cx, id);
    }

    pub(super) fn insert_new(
        &mut self,
        cx: &mut Context,
        id: JobId,
        head: &Arc<JobHead>,
        profile: Arc<Profile>,
        due_at: Timestamp,
    ) {
        let tightened = self.with_min_sandbox(head).map(Arc::new);
        let (head, profile) = match &tightened {
            Some(head) => (head, cx.profiles.of(&head.spec)),
            None => (head, profile),
        };
        let mut job = Job::new(cx, head, profile, initial_state(cx.now, due_at), id.created_at());
        cx.statistics.count_submitted(&job.source);
        job.new = true;
        job.head = Some(Arc::clone(head));
        self.all.insert(id, job);
        self.arm_deadlines(cx, id);
    }

    fn create(&mut self, cx: &mut Context, id: JobId, new: &NewJob) {
        let now = cx.now;
        let spec = &new.head.spec;
        let due_at = spec.run_at.unwrap_or(now).max(now);
        let profile = cx.profiles.of(spec);
        let upstream = self.upstream_of(new);
        self.insert_new(cx, id, &new.head, profile, due_at);
        let about = TransitionDetails { detail: Some(&new.actor), ..TransitionDetails::default() };
        if due_at > now {
            cx.wall_timers.arm(due_at, Timer::JobReady(id));
        }
        if due_at > now || !upstream.is_empty() {
            self.transition(cx, id, JobStatus::Ready, Cause::Submitted, about);
            self.wait_for_upstream(cx, id, upstream);
        } else {
            self.transition(cx, id, JobStatus::Waiting, Cause::Submitted, about);
            self.enqueue(cx, id);
        }
    }
}

fn initial_state(now: Timestamp, due_at: Timestamp) -> JobState {
    JobState {
        status: JobStatus::Ready,
        version: 0,
        updated_at: now,
        due_at,
        upstream: ThinVec::new(),
        queued_at: None,
        started_at: None,
        finished_at: None,
        executions: 0,
        run_failures: 0,
        start_failures: 0,
        losses: 0,
        overdue: false,
        fence: Fence::default(),
        execution: None,
        worker: None,
        cancel_requested_at: None,
        outcome: None,
        // Almost every waiting job has exactly one entry.
        history: Vec::with_capacity(1),
        expires_at: None,
        started: ThinVec::new(),
        checkpoint: None,
    }
}

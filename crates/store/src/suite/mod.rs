//! The contract of [`Store`] as tests: every implementation passes all of them.
//!
//! An implementation defines how its store is created and reopened ([`Subject`]), and calls
//! [`store_suite!`](crate::store_suite), which generates one test for each rule:
//!
//! ```text
//! struct InMemory(MemoryStore);
//! impl store::suite::Subject for InMemory { … }
//! store::store_suite!(InMemory);
//! ```
//!
//! A rule is an async function that panics if the contract is broken. The subject controls the clock: a rule that needs
//! an expired lease advances it and never sleeps.

// A rule is a test: it reports a failure by panicking.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

#[cfg(feature = "postgres")]
pub mod access;
pub mod alerts;
pub mod audit;
pub mod changelog;
pub mod checkpoints;
#[cfg(feature = "postgres")]
pub mod cluster;
pub mod dump;
pub mod elements;
pub mod failures;
pub mod feed;
pub mod leases;
pub mod ledger;
pub mod lists;
#[cfg(feature = "postgres")]
pub mod pair;
#[cfg(feature = "postgres")]
pub mod pooler;
pub mod registry;
pub mod rows;
pub mod runs;
pub mod sample;
pub mod schedules;
pub mod servers;
pub mod services;
pub mod statistics;
pub mod workflows;

use std::sync::Arc;

use model::record::{Batch, Change, Event, ExecutionRecord, JobHead, JobState, Lease, LiveRow};
use model::{Duration, ExecutionStatus, JobId, JobSpec, JobStatus, ShardId};

use crate::{Committed, Loaded, Store, StoreError};
use sample::{Sampler, head_of};

/// Store under test.
pub trait Subject: Sized + Send + Sync {
    /// Creates an empty store with at least 4 shards.
    fn make() -> impl Future<Output = Self> + Send;

    /// Returns the store.
    fn store(&self) -> &dyn Store;

    /// Advances the store's clock.
    fn advance(&self, by: Duration);

    /// Reopens the store with the same data, as the next process does.
    fn reopen(self) -> impl Future<Output = Self> + Send;
}

const HOUR: Duration = Duration::from_hours(1);

/// Shards that the rules use.
const SHARDS: [ShardId; 4] = [ShardId(0), ShardId(1), ShardId(2), ShardId(3)];

/// Store whose shards are all leased, and a source of records.
struct Fixture<S> {
    subject: S,
    leases: Vec<Lease>,
    sampler: Sampler,
}

/// Job as the rules write it.
#[derive(Clone)]
struct Job {
    id: JobId,
    head: Arc<JobHead>,
    state: JobState,
}

impl Job {
    fn change(&self, new: bool) -> Change {
        let head = new.then(|| Arc::clone(&self.head));
        Change::Job { id: self.id, new, head, state: Box::new(self.state.clone()) }
    }

    /// Returns the same job in another status, as its engine would continue it.
    fn to(&self, status: JobStatus, sampler: &mut Sampler) -> Self {
        Self { state: sampler.state(status), ..self.clone() }
    }

    fn row(&self) -> LiveRow {
        LiveRow::Job { id: self.id, head: (*self.head).clone(), state: Box::new(self.state.clone()) }
    }
}

impl<S: Subject> Fixture<S> {
    async fn new() -> Self {
        Self::seeded(7).await
    }

    async fn seeded(seed: u64) -> Self {
        let subject = S::make().await;
        let leases = subject.store().acquire(&SHARDS, "suite", HOUR).await.unwrap();
        assert_eq!(leases.len(), SHARDS.len(), "an empty store has free shards");
        Self { subject, leases, sampler: Sampler::new(seed) }
    }

    fn store(&self) -> &dyn Store {
        self.subject.store()
    }

    async fn reopen(self) -> Self {
        let subject = self.subject.reopen().await;
        subject.advance(HOUR + HOUR);
        let leases = subject.store().acquire(&SHARDS, "suite", HOUR).await.unwrap();
        assert_eq!(leases.len(), SHARDS.len(), "leases of a process that is gone run out");
        Self { subject, leases, ..self }
    }

    fn batch(&mut self, changes: Vec<Change>, events: Vec<Event>) -> Arc<Batch> {
        Arc::new(Batch { now: self.sampler.now(), changes, events, ..Batch::default() })
    }

    async fn try_commit(&mut self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        let batch = self.batch(changes, Vec::new());
        self.store().commit(&self.leases, batch).await
    }

    async fn commit(&mut self, changes: Vec<Change>) -> Committed {
        self.try_commit(changes).await.unwrap()
    }

    /// Creates a random job without committing it.
    fn job(&mut self, status: JobStatus) -> Job {
        self.job_of(status, |_| {})
    }

    fn job_of(&mut self, status: JobStatus, edit: impl FnOnce(&mut JobSpec)) -> Job {
        let shard = self.sampler.pick(&SHARDS);
        let mut spec = self.sampler.spec();
        edit(&mut spec);
        let JobHead { retry_of, origin, step, replica, .. } = (*self.sampler.head()).clone();
        let head = Arc::new(JobHead { retry_of, origin, step, replica, ..head_of(spec) });
        Job { id: self.sampler.job_id(shard), head, state: self.sampler.state(status) }
    }

    fn execution(&mut self, job: &Job, number: u32, status: ExecutionStatus) -> ExecutionRecord {
        self.sampler.execution(job.id, number, status)
    }

    async fn load(&self) -> (Loaded, Vec<LiveRow>) {
        load(self.store(), &self.leases).await.unwrap()
    }
}

fn new_execution(record: &ExecutionRecord) -> Change {
    Change::Execution { new: true, record: Box::new(record.clone()) }
}

fn execution(record: &ExecutionRecord) -> Change {
    Change::Execution { new: false, record: Box::new(record.clone()) }
}

/// Loads all rows, and receives them during the load.
pub(crate) async fn load(store: &dyn Store, leases: &[Lease]) -> Result<(Loaded, Vec<LiveRow>), StoreError> {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let take = async {
        let mut rows = Vec::new();
        while let Some(chunk) = receiver.recv().await {
            rows.extend(chunk);
        }
        rows
    };
    let (loaded, rows) = tokio::join!(store.load(leases, sender), take);
    Ok((loaded?, rows))
}

/// Generates a test of every rule for one [`Subject`]. The caller's crate needs tokio with `macros` and `rt`.
#[macro_export]
macro_rules! store_suite {
    ($subject:ty) => {
        $crate::store_suite! { @rules $subject;
            leases: acquiring_a_free_shard_increases_the_epoch,
            leases: a_leased_shard_is_not_acquired_by_another_owner,
            leases: an_expired_lease_is_acquired_with_a_higher_epoch,
            leases: a_renewal_extends_the_lease,
            leases: a_lease_that_was_taken_over_cannot_be_renewed,
            leases: a_released_shard_is_free_at_once,
            leases: releasing_an_old_lease_does_not_affect_the_new_owner,
            leases: a_commit_under_an_old_epoch_changes_nothing,
            leases: a_commit_for_a_shard_without_a_lease_is_refused,
            leases: a_restored_store_continues_above_all_issued_numbers,
            leases: only_a_reset_sets_engine_time_back,
            leases: a_load_under_an_old_epoch_is_refused,
            leases: a_missing_shard_cannot_be_acquired,
            rows: a_commit_is_visible_immediately,
            rows: every_field_of_a_job_survives,
            rows: every_field_of_an_execution_survives,
            rows: a_load_returns_exactly_the_live_rows,
            rows: a_load_returns_the_rows_of_the_leased_shards_only,
            rows: a_job_moves_from_live_to_ended_with_its_execution,
            rows: a_job_that_is_new_and_ended_in_one_batch_is_history,
            rows: a_failed_job_may_have_ended_executions_while_it_lives,
            rows: a_job_that_is_updated_has_its_new_head,
            rows: a_job_that_is_updated_and_ended_in_one_batch_has_both,
            rows: keys_outlive_their_jobs,
            rows: expired_keys_are_deleted_by_shard,
            rows: an_expired_key_may_be_used_again,
            rows: a_batch_that_breaks_an_invariant_changes_nothing,
            rows: an_execution_number_is_used_once,
            rows: engine_time_never_runs_back,
            rows: concurrent_commits_are_answered_separately,
            rows: committed_rows_survive_a_reopen,
            checkpoints: the_last_checkpoint_of_a_job_is_kept_with_every_field,
            checkpoints: a_checkpoint_is_deleted_with_its_job,
            checkpoints: a_checkpoint_of_a_shard_without_a_lease_is_refused,
            lists: every_filter_of_jobs_finds_the_matching_jobs,
            lists: jobs_are_found_by_the_workflow_of_their_run,
            lists: a_list_is_limited_by_creation_time,
            lists: pages_have_no_gaps_or_duplicates_while_jobs_end,
            lists: lists_are_newest_first_and_have_no_histories,
            lists: executions_are_found_by_job_worker_namespace_and_status,
            lists: counts_follow_every_job,
            schedules: every_field_of_a_schedule_survives,
            schedules: a_schedule_with_a_new_generation_has_its_new_head,
            schedules: a_load_sends_rows_after_their_dependencies,
            schedules: every_filter_of_schedules_finds_the_matching_schedules,
            schedules: upcoming_schedules_are_sorted_by_next_scheduled_time,
            schedules: schedule_counts_follow_every_change,
            schedules: a_name_is_free_once_its_schedule_is_removed,
            schedules: a_name_is_used_once_in_its_namespace,
            schedules: a_schedule_of_a_shard_without_a_lease_is_refused,
            schedules: a_missing_schedule_cannot_be_changed,
            schedules: calendars_are_kept_until_they_are_removed,
            ledger: every_field_of_a_ledger_entry_survives,
            ledger: a_ledger_entry_with_a_job_never_gets_another_job,
            ledger: a_waiting_firing_gets_its_job,
            ledger: every_filter_of_the_ledger_finds_the_matching_entries,
            ledger: a_range_includes_entries_that_extend_into_it,
            ledger: scheduled_times_are_counted_by_outcome,
            ledger: ledger_entries_outlive_their_schedule,
            ledger: old_ledger_entries_are_trimmed_unless_they_wait,
            ledger: a_running_backfill_is_live_until_it_ends,
            ledger: backfills_are_found_by_schedule_and_namespace,
            ledger: old_backfills_are_trimmed,
            workflows: every_field_of_a_workflow_survives,
            workflows: every_field_of_a_run_and_its_steps_survives,
            workflows: a_run_leaves_the_live_rows_with_its_steps_when_it_ends,
            workflows: a_load_sends_a_run_then_added_elements_then_steps,
            workflows: workflow_names_are_unique_and_free_once_removed,
            workflows: a_missing_run_or_workflow_cannot_be_changed,
            workflows: a_run_of_a_shard_without_a_lease_is_refused,
            workflows: keys_of_runs_outlive_them_and_are_deleted_by_shard,
            runs: every_generation_of_a_workflow_is_kept_until_it_is_removed,
            runs: every_filter_of_workflows_finds_the_matching_workflows,
            runs: live_and_ended_runs_are_read_with_their_history,
            runs: every_filter_of_runs_finds_the_matching_runs,
            runs: runs_of_one_definition_share_it_in_a_page,
            runs: steps_are_listed_without_elements_and_elements_in_pages,
            runs: expired_runs_are_listed_longest_expired_first,
            runs: a_run_is_deleted_with_all_its_steps,
            runs: a_definition_is_kept_while_a_run_uses_it,
            services: every_field_of_a_service_survives,
            services: a_load_sends_services_before_their_replicas,
            services: every_filter_of_services_finds_the_matching_services,
            services: service_names_are_unique_and_free_once_removed,
            services: a_missing_service_cannot_be_changed,
            services: a_service_of_a_shard_without_a_lease_is_refused,
            services: replicas_are_read_with_their_live_executions,
            services: replicas_are_found_by_the_namespaces_of_their_services,
            elements: added_elements_are_read_completely_and_in_order,
            elements: added_elements_are_loaded_while_their_run_is_live,
            elements: elements_are_added_once_at_an_index,
            elements: elements_of_a_shard_without_a_lease_are_refused,
            elements: added_elements_are_deleted_with_their_run,
            feed: events_have_positions_without_gaps,
            feed: a_reader_resumes_where_it_stopped,
            feed: a_reader_detects_trimmed_events,
            feed: positions_continue_after_all_events_were_trimmed,
            registry: workers_are_kept_until_they_are_removed,
            registry: queues_are_kept_until_they_are_removed,
            registry: namespaces_are_kept_until_they_are_removed,
            registry: artifact_versions_are_listed_newest_first,
            registry: an_artifact_version_is_deleted_alone_and_superseded_ones_are_found,
            registry: an_artifact_version_is_kept_as_long_as_its_run,
            registry: a_live_run_protects_its_versions_from_requests,
            registry: a_version_that_is_stored_again_is_not_deleted_by_retention,
            registry: storing_the_same_bytes_again_makes_them_the_newest,
            registry: expired_jobs_are_listed_and_deleted,
            registry: the_health_check_of_a_working_store_succeeds,
            access: entries_of_access_control_are_kept_and_replaced,
            access: entries_that_changed_after_a_version_are_returned,
            access: a_change_of_outdated_entries_writes_nothing,
            access: unchanged_entries_are_deleted_without_a_new_version,
            alerts: rows_of_alerts_are_kept_replaced_and_deleted,
            alerts: a_change_of_outdated_rows_of_alerts_writes_nothing,
            audit: appended_entries_of_the_audit_log_are_kept_in_order,
            audit: of_two_servers_that_append_one_is_refused,
            audit: every_filter_of_the_audit_log_finds_the_matching_entries,
            audit: old_entries_of_the_audit_log_are_deleted_from_the_oldest_on,
            servers: a_server_is_registered_until_its_ttl_expires,
            servers: a_deregistered_server_disappears_immediately,
            servers: the_lag_of_a_server_is_listed,
            servers: draining_lasts_until_it_is_revoked,
            servers: the_owner_of_each_shard_is_listed,
            servers: all_servers_read_the_same_secret,
            statistics: counts_are_complete_before_and_after_a_fold,
            statistics: folds_at_the_same_time_count_once,
            statistics: every_field_of_statistics_survives,
            statistics: a_refused_commit_counts_nothing,
            statistics: a_query_returns_the_requested_subjects_and_intervals,
            statistics: old_intervals_are_deleted_by_their_resolution,
            failures: failures_are_complete_before_and_after_a_fold,
            failures: every_field_of_a_failure_group_survives,
            failures: the_mark_of_a_group_survives_further_failures,
            failures: groups_without_recent_failures_are_deleted,
            failures: a_full_namespace_gets_room_for_new_groups,
        }
    };
    (@rules $subject:ty; $($module:ident: $rule:ident,)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::suite::$module::$rule::<$subject>().await;
            }
        )*

        /// For the test that no rule is missing here.
        #[allow(dead_code, reason = "looked at by the suite's own crate")]
        const RULES: &[&str] = &[$(stringify!($rule)),*];
    };
}

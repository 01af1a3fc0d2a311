//! Integration tests of the worker: a real agent, supervisor and fuse with a server inside the test.
//!
//! The agent starts the supervisor, and the supervisor starts the fuse, by running the configured program;
//! here this is the test program itself. So it has its own `main`, which reads its arguments, and an explicit
//! list of tests.
//!
//! - [`rig`]: the worker under test. [`server`]: its server. [`proxy`]: a network between them that fails.
//! - [`run`], [`stop`], [`tasks`], [`logs`], [`artifacts`]: tasks. [`lease`], [`launch`]: leases and slow
//!   launches.
//! - [`services`]: ports and health checks.
//! - [`session`], [`journal`], [`pids`]: sessions, recovery, and processes with reused ids.
//!
//! A new test must be added to the list in `trials`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "tests, which clippy does not see without the usual harness"
)]

mod artifacts;
mod journal;
mod launch;
mod lease;
mod logs;
mod pids;
mod proxy;
mod rig;
mod run;
mod server;
mod services;
mod session;
mod stop;
mod tasks;

use std::future::Future;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

macro_rules! trials {
    ($($module:ident { $($name:ident,)* })*) => {
        vec![$($(trial(concat!(stringify!($module), "::", stringify!($name)), $module::$name),)*)*]
    };
}

fn trials() -> Vec<Trial> {
    trials! {
        run {
            a_task_runs_and_its_outcome_and_log_are_received,
            the_use_of_a_running_task_is_measured,
            hooks_run_before_and_after_the_process,
            a_failed_hook_before_the_start_fails_the_task,
            hooks_after_a_stop_run_within_the_grace_period,
            a_sidecar_runs_as_long_as_the_process,
            a_sidecar_that_is_not_ready_fails_the_task,
            an_acknowledged_execution_and_its_folder_are_removed,
            an_execution_that_is_assigned_again_does_not_run_again,
            a_failed_task_reports_exit_code_or_signal,
            a_start_failure_is_reported_with_its_reason,
            a_task_gets_a_clean_environment_and_its_own_folder,
            a_task_of_a_schedule_gets_its_scheduled_time,
            a_task_of_a_workflow_gets_its_step_and_element,
            tasks_of_a_root_worker_run_as_nobody_and_cannot_regain_root,
            a_script_runs_by_its_interpreter_and_reads_its_standard_input,
            output_values_come_with_the_outcome,
            invalid_output_values_fail_a_succeeded_task,
            executions_beyond_the_slots_are_refused,
            the_peak_memory_excludes_the_supervisor,
            a_task_that_exceeds_its_memory_limit_is_killed,
            the_process_limit_is_enforced,
            a_thousand_short_tasks_succeed,
        }
        stop {
            a_stop_before_the_assignment_refuses_the_execution_permanently,
            a_stopped_task_can_clean_up_within_its_grace_period,
            a_task_is_stopped_with_its_stop_signal,
            a_task_that_ignores_its_timeout_is_killed_with_its_whole_tree,
            remaining_processes_are_killed_before_the_end_is_reported,
            a_discarded_execution_is_killed_and_not_reported,
            a_process_without_marks_is_killed_with_its_task,
            a_process_without_marks_is_killed_with_its_supervisor,
            a_sibling_created_by_a_task_is_killed_with_it,
            a_child_not_started_by_the_supervisor_is_not_killed,
            without_control_groups_an_unmarked_process_is_killed_with_the_last_task_of_its_start_time,
        }
        lease {
            nothing_starts_without_a_lease,
            tasks_are_frozen_when_the_lease_expires_and_continue_under_the_next,
            an_at_most_once_task_continues_without_a_lease,
            frozen_time_does_not_count_towards_the_timeout,
            stopped_executions_are_killed_before_the_others_are_thawed,
            a_task_frozen_beyond_the_orphan_limit_is_killed_as_interrupted,
            time_frozen_by_the_fuse_does_not_count_towards_the_timeout,
            tasks_frozen_by_the_fuse_during_the_launch_continue,
            the_fuse_freezes_tasks_whose_supervisor_is_stopped,
            the_fuse_freezes_a_process_without_marks,
            the_fuse_kills_everything_when_the_supervisor_is_killed,
            a_killed_fuse_is_replaced_and_the_new_one_guards_running_tasks,
            a_supervisor_of_a_copied_folder_does_not_kill_tasks_of_the_original,
            tasks_frozen_by_a_replaced_fuse_continue,
            executions_of_a_killed_supervisor_are_reported_as_interrupted,
            a_fuse_that_exits_at_once_is_restarted_with_a_delay,
            a_stopped_fuse_is_replaced,
            processes_continued_by_another_process_are_frozen_again,
        }
        launch {
            a_task_whose_program_is_not_loaded_can_be_stopped,
            a_task_whose_program_is_not_loaded_times_out,
            a_task_whose_program_is_not_loaded_ends_with_its_supervisor,
            a_task_that_was_frozen_before_its_program_was_loaded_can_be_stopped,
            time_frozen_during_the_launch_does_not_count_towards_the_timeout,
            queued_launches_do_not_start_after_the_lease_expired_during_a_pause,
            a_program_loaded_after_the_lease_expired_is_frozen_while_the_supervisor_is_stopped,
            a_program_frozen_before_it_was_loaded_continues_under_the_next_lease,
            a_worker_reports_that_all_threads_wait_for_programs,
            executions_not_started_before_the_shutdown_are_refused,
        }
        session {
            unacknowledged_reports_are_repeated_on_the_next_session,
            reports_beyond_the_message_size_are_all_received,
            an_execution_is_not_started_again_after_ten_thousand_later_ends,
            a_second_agent_for_a_folder_is_refused,
            a_session_is_closed_while_the_supervisor_is_stopped,
            a_task_and_its_report_outlive_the_agent,
            an_outcome_outlives_the_supervisor,
            an_unknown_session_is_reopened,
            a_server_that_answers_no_heartbeat_is_left,
            a_server_without_heartbeat_connection_is_replaced_by_another,
            heartbeats_contain_health_and_token,
            a_supervisor_kills_its_tasks_on_shutdown_and_reports_it,
            an_idle_supervisor_exits_without_an_agent,
        }
        logs {
            a_long_log_is_limited_and_reports_the_omitted_bytes,
            a_log_upload_resumes_at_the_acknowledged_offset,
            heartbeats_and_reports_continue_during_a_flood_of_logs,
        }
        artifacts {
            inputs_are_staged_before_the_task_starts,
            an_input_that_does_not_match_its_hash_fails_the_start,
            outputs_are_stored_before_success_is_reported,
            a_missing_output_fails_a_succeeded_task,
            outputs_are_stored_by_the_next_supervisor_after_a_crash,
            stored_outputs_survive_a_crash_before_the_end_is_recorded,
        }
        journal {
            records_after_a_failed_compaction_survive_a_restart,
            a_worker_starts_from_a_journal_with_a_hole_in_its_last_batch,
        }
        pids {
            a_task_with_a_reused_process_id_is_not_reported_as_ended,
        }
        services {
            a_task_with_a_free_port_serves_and_its_health_is_reported,
            a_failed_liveness_check_ends_the_task_as_unhealthy,
            a_startup_check_that_never_succeeds_ends_the_task_as_unhealthy,
            a_command_check_runs_beside_the_task_and_the_task_learns_why_it_ends,
            a_restarted_agent_continues_the_health_checks,
            a_new_session_gets_the_health_of_all_tasks,
            failed_checks_of_a_frozen_task_do_not_count,
            a_fixed_port_belongs_to_one_task_at_a_time,
            a_start_fails_if_no_port_of_the_range_is_free,
            a_task_finds_its_volumes_with_what_earlier_tasks_left,
            a_start_fails_without_the_directory_of_a_volume,
            a_replica_gets_its_service_and_ports_in_its_environment,
            a_worker_reports_its_address,
            an_agent_of_an_older_release_gets_no_health_checks,
        }
        tasks {
            a_task_saves_and_reads_its_checkpoint_through_its_socket,
            a_task_has_a_socket_in_a_worker_folder_with_a_long_path,
            a_refused_request_returns_the_reason,
            a_task_adds_elements_and_a_repeated_batch_adds_nothing,
            elements_that_cannot_be_added_are_refused_with_the_reason,
            a_task_reads_the_endpoints_of_a_service,
            endpoints_that_cannot_be_read_are_refused_with_the_reason,
            a_task_request_waits_for_an_agent,
            a_task_repeats_a_request_after_the_agent_was_killed,
            a_slow_request_does_not_block_other_tasks,
            a_late_request_is_not_attributed_to_the_next_execution,
            a_checkpoint_file_is_saved_while_the_task_runs,
            the_last_checkpoint_is_sent_with_the_end,
            a_too_large_checkpoint_is_reported_to_task_log_and_server,
            the_newer_of_checkpoint_file_and_request_is_saved,
            a_stopped_task_saves_a_checkpoint_within_its_grace_period,
            an_execution_gets_the_checkpoint_of_the_previous_one,
            a_lost_checkpoint_does_not_prevent_a_task_from_running,
            an_unsaved_checkpoint_file_is_sent_with_the_end,
        }
    }
}

fn trial<F, R>(name: &'static str, test: F) -> Trial
where
    F: FnOnce() -> R + Send + 'static,
    R: Future<Output = ()>,
{
    Trial::test(name, move || Ok(run(test())?))
}

fn run(test: impl Future<Output = ()>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(test);
    Ok(())
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|arg| arg.to_str()) {
        Some("supervisor") => {
            log_to_stderr();
            let config = worker::SupervisorConfig::from_args(args).expect("the agent passes valid arguments");
            ended(worker::run_supervisor(config))
        }
        Some("fuse") => ended(worker::run_fuse()),
        Some("shim") => runtimes::run_shim(args),
        Some("sibling") => stop::make_sibling(),
        Some("service") => services::serve(args.next().expect("the file of the answers").as_ref()),
        Some("numbers") => ended(run(pids::play())),
        _ => {
            log_to_stderr();
            libtest_mimic::run(&Arguments::from_args(), trials()).exit_code()
        }
    }
}

fn ended<E: std::fmt::Debug>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

//! Integration tests of the worker: a real agent, supervisor and fuse with a server inside the test.
//!
//! The agent starts the supervisor, and the supervisor starts the fuse, by running the configured program; here this
//! is the test program itself. So it has its own `main`, which reads its arguments, and an explicit list of tests.

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
            a_task_runs_and_its_outcome_and_log_arrive,
            an_acknowledged_end_is_forgotten_and_its_folder_removed,
            an_execution_that_is_assigned_again_does_not_run_again,
            a_task_that_fails_says_how,
            a_task_that_cannot_start_says_why,
            a_task_finds_a_clean_environment_and_a_folder_of_its_own,
            a_task_of_a_schedule_finds_the_instant_that_it_is_for,
            a_task_of_a_workflow_finds_its_step_and_its_element,
            tasks_of_root_run_as_nobody_and_cannot_get_back,
            a_script_runs_by_its_interpreter_and_reads_its_standard_input,
            output_values_come_with_the_outcome,
            bad_output_values_fail_a_task_that_ended_well,
            more_than_the_slots_are_refused,
            the_peak_of_memory_is_that_of_the_task,
            a_memory_limit_kills_what_uses_more,
            a_limit_on_processes_holds,
            a_thousand_short_tasks_all_end_well,
        }
        stop {
            a_stop_that_comes_before_its_assignment_refuses_it_for_ever,
            a_stopped_task_may_clean_up_within_its_grace,
            a_task_that_ignores_its_timeout_is_killed_with_its_whole_tree,
            what_a_task_leaves_behind_is_killed_before_its_end_is_reported,
            a_discarded_execution_is_killed_and_not_heard_of_again,
            a_process_without_any_mark_dies_with_its_task,
            a_process_without_any_mark_dies_with_its_supervisor,
            a_sibling_that_a_task_made_dies_with_it,
            a_child_that_the_supervisor_did_not_start_lives_on,
            without_control_groups_a_process_without_any_mark_dies_with_the_last_task_that_ran_at_its_start,
        }
        lease {
            nothing_starts_without_a_lease,
            tasks_freeze_when_the_lease_runs_out_and_go_on_with_the_next,
            an_at_most_once_task_runs_on_without_a_lease,
            frozen_time_does_not_count_towards_the_timeout,
            what_the_server_no_longer_wants_is_gone_before_the_rest_thaws,
            a_task_that_is_frozen_for_too_long_is_killed_as_interrupted,
            time_that_the_fuse_froze_a_task_does_not_count_towards_its_timeout,
            what_the_fuse_froze_while_it_was_launched_goes_on,
            the_fuse_freezes_tasks_whose_supervisor_is_stopped,
            the_fuse_freezes_a_process_without_any_mark,
            the_fuse_kills_everything_when_the_supervisor_is_killed,
            a_fuse_that_dies_is_replaced_and_the_new_one_guards_what_runs,
            a_supervisor_of_a_copied_folder_leaves_the_tasks_of_the_original_alone,
            what_a_fuse_freezes_while_it_is_replaced_goes_on,
            executions_of_a_killed_supervisor_are_reported_as_interrupted,
            a_fuse_that_ends_at_once_is_not_started_again_without_a_pause,
            a_fuse_that_is_stopped_is_replaced,
            processes_that_another_one_of_their_task_lets_go_on_are_frozen_too,
        }
        launch {
            a_task_whose_program_is_not_loaded_can_be_stopped,
            a_task_whose_program_is_not_loaded_times_out,
            a_task_whose_program_is_not_loaded_ends_with_its_supervisor,
            a_task_that_was_frozen_before_its_program_was_loaded_can_be_stopped,
            time_that_a_task_was_frozen_before_its_program_was_loaded_does_not_count_towards_its_timeout,
            starts_that_wait_for_a_thread_are_not_made_after_a_pause_that_outlasts_the_lease,
            a_program_that_is_loaded_after_the_end_of_the_lease_is_frozen_beside_a_stopped_supervisor,
            a_program_that_the_fuse_froze_before_it_was_loaded_goes_on_under_the_next_lease,
            a_worker_whose_threads_all_wait_for_programs_says_so,
            what_was_not_started_when_the_supervisor_is_told_to_end_is_refused,
        }
        session {
            unacknowledged_reports_are_repeated_on_the_next_session,
            more_reports_than_one_message_holds_all_arrive,
            an_execution_that_ended_ten_thousand_ends_ago_is_not_started_again,
            a_second_agent_of_a_folder_is_refused,
            a_session_ends_while_the_supervisor_stands_still,
            a_task_and_its_report_outlive_the_agent,
            an_outcome_outlives_the_supervisor,
            an_unknown_session_is_opened_anew,
            a_server_that_answers_no_heartbeat_is_left,
            a_server_that_heartbeats_do_not_reach_is_left_for_another_one,
            heartbeats_tell_of_the_machine_and_show_the_token,
            a_supervisor_that_is_told_to_end_kills_its_tasks_and_says_so,
            a_supervisor_with_nothing_to_do_ends_when_its_agent_is_gone,
        }
        logs {
            a_long_log_is_bounded_and_says_what_was_left_out,
            a_log_resumes_where_it_was_acknowledged,
            heartbeats_and_reports_go_on_during_a_flood_of_logs,
        }
        artifacts {
            inputs_are_there_before_the_task_starts,
            an_input_that_does_not_match_its_hash_fails_the_start,
            outputs_are_stored_before_success_is_reported,
            a_missing_output_fails_a_task_that_ended_well,
            outputs_are_stored_by_the_next_supervisor_if_this_one_dies,
            outputs_that_were_stored_are_not_missing_where_the_supervisor_dies_before_it_records_the_end,
        }
        journal {
            what_is_recorded_after_a_compaction_that_failed_is_known_after_a_restart,
            a_worker_starts_over_a_journal_whose_last_batch_has_a_hole,
        }
        pids {
            a_task_with_the_number_of_an_earlier_process_is_not_taken_for_ended,
        }
        tasks {
            a_task_saves_and_reads_its_checkpoint_through_its_socket,
            a_task_has_a_socket_however_long_the_path_of_its_worker,
            a_request_that_cannot_be_granted_says_why,
            a_task_adds_elements_to_a_step_and_the_same_batch_once,
            elements_that_cannot_be_added_are_refused_with_the_reason,
            a_task_that_calls_while_no_agent_is_there_waits_for_one,
            an_agent_that_is_killed_under_a_request_costs_the_task_one_more_try,
            a_task_that_is_slow_to_ask_holds_up_no_other,
            a_call_for_an_execution_that_is_over_never_speaks_for_the_next_one,
            what_a_task_writes_to_its_file_is_saved_while_it_runs,
            the_last_checkpoint_comes_with_the_end_of_its_task,
            a_checkpoint_that_is_too_large_is_told_to_all,
            a_file_and_a_call_do_not_overwrite_each_other_unnoticed,
            a_stopped_task_saves_within_its_grace,
            an_execution_finds_the_checkpoint_of_the_one_before,
            a_checkpoint_that_the_store_lost_does_not_keep_a_task_from_running,
            a_file_that_no_agent_has_saved_comes_with_the_end,
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
        Some("sibling") => stop::make_sibling(),
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

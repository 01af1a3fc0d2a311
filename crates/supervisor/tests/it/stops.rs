//! Stops in every phase of an execution.

use model::{ExecutionId, Fence, StopReason};
use supervisor::{EndReason, Event, ExecutionPolicy, Report};

use crate::shell::{End, Plain, Shell};

const ONE: ExecutionId = ExecutionId::from_bits(1);
const GRACE: u64 = 300;

fn shell() -> Shell {
    let mut shell = Shell::new();
    shell.renew(60_000);
    shell
}

fn assign(shell: &mut Shell) {
    shell.assign(ONE, ExecutionPolicy { at_most_once: false, timeout: None, grace: GRACE });
}

fn last(shell: &Shell) -> &Report<Plain> {
    &shell.reports.last().unwrap().2
}

fn is_refused(shell: &Shell, why: &str) -> bool {
    matches!(last(shell), Report::Refused { reason, .. } if reason == why)
}

fn has_ended(shell: &Shell, verdict: EndReason, stored: bool) -> bool {
    let end = End { verdict: Some(verdict), stored };
    matches!(last(shell), Report::Ended(ended) if **ended == end)
}

#[test]
fn an_execution_stopped_before_its_assignment_is_never_started() {
    let mut shell = shell();
    shell.stop(ONE, GRACE, false);
    shell.write_all();
    assert!(is_refused(&shell, "stopped"));
    assign(&mut shell);
    shell.write_all();
    assert!(shell.launched.is_empty());
}

#[test]
fn a_discarded_execution_is_not_started_by_a_late_assignment() {
    let mut shell = shell();
    shell.stop(ONE, GRACE, true);
    shell.write_all();
    assign(&mut shell);
    assert!(is_refused(&shell, "known"));
    assert!(shell.launched.is_empty());
}

#[test]
fn a_stop_before_the_start_is_durable_prevents_the_launch() {
    let mut shell = shell();
    assign(&mut shell);
    shell.stop(ONE, GRACE, false);
    shell.write_all();
    assert!(is_refused(&shell, "stopped"));
    assert!(shell.launched.is_empty());
}

#[test]
fn a_launch_that_has_not_begun_is_refused_after_its_grace_period() {
    let mut shell = shell();
    assign(&mut shell);
    shell.write_all();
    shell.stop(ONE, GRACE, false);
    shell.pass(0, GRACE + 1);
    shell.begin(ONE);
    shell.write_all();
    assert!(is_refused(&shell, "stopped"));
    assert!(shell.processes.is_empty());
}

#[test]
fn a_program_not_loaded_within_the_grace_period_is_killed_as_stopped() {
    let mut shell = shell();
    assign(&mut shell);
    shell.write_all();
    shell.begin(ONE);
    shell.stop(ONE, GRACE, false);
    shell.pass(0, GRACE - 1);
    assert!(shell.processes[&ONE].is_alive);
    shell.pass(0, 2);
    assert!(shell.processes[&ONE].was_killed);
    shell.load(ONE);
    assert_eq!(shell.core.end_reason(ONE), Some(EndReason::Stopped(StopReason::Cancelled)));
}

#[test]
fn a_task_gets_sigterm_first_and_is_killed_after_its_grace_period() {
    let mut shell = shell();
    assign(&mut shell);
    shell.write_all();
    shell.begin(ONE);
    shell.load(ONE);
    shell.stop(ONE, GRACE, false);
    assert!(shell.processes[&ONE].was_terminated && shell.processes[&ONE].is_alive);
    shell.pass(0, GRACE);
    assert!(shell.processes[&ONE].was_killed);
    shell.reap(ONE, false);
    shell.write_all();
    assert!(has_ended(&shell, EndReason::Stopped(StopReason::Cancelled), false), "{:?}", last(&shell));
}

#[test]
fn a_frozen_task_is_killed_without_a_grace_period() {
    let mut shell = shell();
    assign(&mut shell);
    shell.write_all();
    shell.begin(ONE);
    shell.load(ONE);
    shell.pass(0, 60_000);
    shell.stop(ONE, GRACE, false);
    assert!(shell.processes[&ONE].was_killed);
}

/// Returns a shell in which the execution runs.
fn running() -> Shell {
    let mut shell = shell();
    assign(&mut shell);
    shell.write_all();
    shell.begin(ONE);
    shell.load(ONE);
    shell
}

#[test]
fn an_unhealthy_task_gets_sigterm_first_and_is_killed_after_its_grace_period() {
    let mut shell = running();
    shell.check_failed(ONE);
    assert!(shell.processes[&ONE].was_terminated && shell.processes[&ONE].is_alive);
    // The agent counts failures again; the kill is not delayed.
    shell.pass(0, GRACE - 1);
    shell.check_failed(ONE);
    shell.pass(0, 1);
    assert!(shell.processes[&ONE].was_killed);
    shell.reap(ONE, true);
    shell.write_all();
    assert!(has_ended(&shell, EndReason::Unhealthy, false), "{:?}", last(&shell));
    assert!(shell.to_store.is_empty(), "it has not succeeded");
}

#[test]
fn a_failed_check_with_another_fence_has_no_effect() {
    let mut shell = running();
    shell.tell(Event::CheckFailed { execution: ONE, fence: Fence(6), since: shell.now.boot });
    assert!(!shell.processes[&ONE].was_terminated);
}

#[test]
fn a_failed_check_of_an_execution_that_is_stopped_keeps_the_reason() {
    let mut shell = running();
    shell.stop(ONE, GRACE, false);
    shell.check_failed(ONE);
    assert_eq!(shell.core.end_reason(ONE), Some(EndReason::Stopped(StopReason::Cancelled)));
}

#[test]
fn a_failed_check_of_a_frozen_task_has_no_effect() {
    let mut shell = running();
    shell.pass(0, 60_000);
    shell.check_failed(ONE);
    assert!(shell.processes[&ONE].frozen && !shell.processes[&ONE].was_killed);
    shell.renew(60_000);
    assert_eq!(shell.core.end_reason(ONE), Some(EndReason::ByItself));
}

/// The messages of an agent may wait while the supervisor is stopped.
#[test]
fn checks_that_failed_before_a_thaw_have_no_effect() {
    let mut shell = running();
    let since = shell.now.boot;
    shell.pass(0, 60_000);
    shell.renew(60_000);
    shell.tell(Event::CheckFailed { execution: ONE, fence: Fence(7), since });
    assert!(!shell.processes[&ONE].was_terminated);
    shell.pass(0, 1);
    shell.check_failed(ONE);
    assert!(shell.processes[&ONE].was_terminated);
}

#[test]
fn a_failed_check_of_an_execution_that_is_not_running_has_no_effect() {
    let mut shell = shell();
    shell.check_failed(ONE);
    assign(&mut shell);
    shell.check_failed(ONE);
    shell.write_all();
    shell.begin(ONE);
    shell.check_failed(ONE);
    shell.load(ONE);
    assert!(!shell.processes[&ONE].was_terminated);
    shell.exit(ONE);
    shell.tell(Event::Exited { execution: ONE });
    shell.check_failed(ONE);
    shell.reap(ONE, false);
    shell.write_all();
    assert!(has_ended(&shell, EndReason::ByItself, false), "{:?}", last(&shell));
}

#[test]
fn a_stop_while_output_files_are_stored_ends_the_execution() {
    let mut shell = shell();
    assign(&mut shell);
    shell.write_all();
    shell.begin(ONE);
    shell.load(ONE);
    shell.exit(ONE);
    shell.reap(ONE, true);
    shell.write_all();
    assert_eq!(shell.to_store, [ONE]);
    shell.stop(ONE, GRACE, false);
    shell.write_all();
    assert!(has_ended(&shell, EndReason::Stopped(StopReason::Cancelled), false), "{:?}", last(&shell));
    shell.store();
    shell.write_all();
    assert!(has_ended(&shell, EndReason::Stopped(StopReason::Cancelled), false), "{:?}", last(&shell));
}

#[test]
fn output_files_are_stored_by_the_next_supervisor_and_the_task_does_not_run_again() {
    let mut shell = shell();
    assign(&mut shell);
    shell.write_all();
    shell.begin(ONE);
    shell.load(ONE);
    shell.exit(ONE);
    shell.reap(ONE, true);
    shell.write_all();
    shell.crash(0);
    assert_eq!(shell.to_store, [ONE]);
    shell.store();
    shell.write_all();
    assert!(has_ended(&shell, EndReason::ByItself, true), "{:?}", last(&shell));
    assert_eq!(shell.launched.len(), 1);
}

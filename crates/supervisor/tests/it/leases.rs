//! Expiry and renewal of leases.

use model::ExecutionId;
use supervisor::{ClockReading, EndReason, Event, ExecutionPolicy};

use crate::shell::{ORPHAN_LIMIT, Shell};

const ONE: ExecutionId = ExecutionId::from_bits(1);

fn terms(at_most_once: bool, timeout: Option<u64>) -> ExecutionPolicy {
    ExecutionPolicy { at_most_once, timeout, grace: 300 }
}

/// A shell with a lease of one second, and a running execution.
fn running(terms: ExecutionPolicy) -> Shell {
    let mut shell = Shell::new();
    shell.renew(1_000);
    shell.assign(ONE, terms);
    shell.write_all();
    shell.begin(ONE);
    shell.load(ONE);
    shell
}

fn is_frozen(shell: &Shell) -> bool {
    shell.processes[&ONE].frozen
}

#[test]
fn an_execution_is_frozen_at_the_end_of_the_lease_and_continues_under_the_next() {
    let mut shell = running(terms(false, None));
    shell.pass(0, 999);
    assert!(!is_frozen(&shell));
    shell.pass(0, 1);
    assert!(is_frozen(&shell));
    shell.renew(1_000);
    assert!(!is_frozen(&shell));
}

#[test]
fn an_at_most_once_execution_runs_without_a_lease() {
    let mut shell = running(terms(true, None));
    shell.pass(0, 5_000);
    assert!(!is_frozen(&shell));
}

#[test]
fn an_execution_waits_for_a_lease_before_its_start_is_journaled() {
    let mut shell = Shell::new();
    shell.assign(ONE, terms(false, None));
    shell.write_all();
    assert!(!shell.disk.has_started(ONE));
    shell.renew(1_000);
    shell.write_all();
    assert!(shell.launched.contains(&ONE));
}

#[test]
fn a_start_journaled_after_the_lease_expired_waits_for_the_next_lease() {
    let mut shell = Shell::new();
    shell.renew(1_000);
    shell.assign(ONE, terms(false, None));
    shell.pass(0, 2_000);
    shell.write_all();
    assert!(!shell.launched.contains(&ONE));
    shell.renew(1_000);
    assert!(shell.launched.contains(&ONE));
}

/// The thread checked the lease just before it expired, and the program took long to load.
#[test]
fn a_program_loaded_after_the_lease_expired_is_frozen() {
    let mut shell = Shell::new();
    shell.renew(1_000);
    shell.assign(ONE, terms(false, None));
    shell.write_all();
    shell.begin(ONE);
    shell.pass(0, 2_000);
    shell.load(ONE);
    assert!(is_frozen(&shell));
}

#[test]
fn a_held_back_launch_starts_under_the_next_lease() {
    let mut shell = Shell::new();
    shell.renew(1_000);
    shell.assign(ONE, terms(false, None));
    shell.write_all();
    shell.pass(0, 2_000);
    shell.begin(ONE);
    assert!(shell.processes.is_empty());
    shell.renew(1_000);
    shell.begin(ONE);
    shell.load(ONE);
    assert!(shell.processes[&ONE].is_loaded);
}

#[test]
fn neither_frozen_nor_suspended_time_counts_towards_a_timeout() {
    let mut shell = running(terms(false, Some(3_000)));
    // Runs for one second, is frozen for five, and runs for another second after the machine was suspended for a
    // minute.
    shell.pass(0, 6_000);
    shell.renew(120_000);
    shell.pass(60_000, 1_000);
    assert_eq!(shell.core.end_reason(ONE), Some(EndReason::ByItself));
    shell.pass(0, 1_100);
    assert_eq!(shell.core.end_reason(ONE), Some(EndReason::TimedOut));
}

/// The fuse acts while the supervisor is stopped; the supervisor gets the notice only afterwards.
#[test]
fn frozen_time_counts_from_the_freeze_by_the_fuse() {
    let mut shell = running(terms(false, Some(3_000)));
    shell.pass(0, 900);
    let since = ClockReading { boot: shell.now.boot + 100, suspended: 0 };
    shell.now.boot += 10_000;
    shell.tell(Event::FuseFroze { since });
    shell.renew(60_000);
    shell.pass(0, 1_900);
    assert_eq!(shell.core.end_reason(ONE), Some(EndReason::ByItself), "two seconds were left");
    shell.pass(0, 200);
    assert_eq!(shell.core.end_reason(ONE), Some(EndReason::TimedOut));
}

/// The same for a program that is still being loaded; the renewal is processed first.
#[test]
fn a_launch_frozen_by_the_fuse_does_not_time_out_before_the_fuse_reports() {
    let mut shell = Shell::new();
    shell.renew(1_000);
    shell.assign(ONE, terms(false, Some(3_000)));
    shell.write_all();
    shell.begin(ONE);
    shell.pass(0, 900);
    let since = ClockReading { boot: shell.now.boot + 100, suspended: 0 };
    shell.now.boot += 10_000;
    shell.renew(60_000);
    shell.tell(Event::FuseFroze { since });
    shell.pass(0, 1_900);
    assert!(!shell.processes[&ONE].was_killed, "a hundred milliseconds were left");
    shell.pass(0, 200);
    assert!(shell.processes[&ONE].was_killed);
}

#[test]
fn an_execution_frozen_beyond_the_orphan_limit_is_killed() {
    let mut shell = running(terms(false, None));
    shell.pass(0, ORPHAN_LIMIT);
    assert!(shell.processes[&ONE].is_alive);
    // No server can be reached while the machine is suspended, so this time does not count.
    shell.pass(3 * ORPHAN_LIMIT, 500);
    assert!(shell.processes[&ONE].is_alive);
    shell.pass(0, 1_000);
    assert!(shell.processes[&ONE].was_killed);
    assert_eq!(shell.core.end_reason(ONE), Some(EndReason::Orphaned));
}

#[test]
fn a_shorter_lease_changes_nothing() {
    let mut shell = running(terms(false, None));
    shell.renew(500);
    assert_eq!(shell.core.lease_until(), shell.now.boot + 1_000);
}

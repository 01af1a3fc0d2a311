//! Expiry and renewal of leases.

use model::ExecutionId;
use supervisor::{Event, Moment, Terms, Verdict};

use crate::shell::{ORPHAN_LIMIT, Shell};

const ONE: ExecutionId = ExecutionId::from_bits(1);

fn terms(at_most_once: bool, timeout: Option<u64>) -> Terms {
    Terms { at_most_once, timeout, grace: 300 }
}

/// A shell with a lease of one second, and a running execution.
fn running(terms: Terms) -> Shell {
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
fn what_the_server_starts_nowhere_else_runs_without_a_lease() {
    let mut shell = running(terms(true, None));
    shell.pass(0, 5_000);
    assert!(!is_frozen(&shell));
}

#[test]
fn an_execution_waits_for_a_lease_before_its_start_is_written_down() {
    let mut shell = Shell::new();
    shell.assign(ONE, terms(false, None));
    shell.write_all();
    assert!(!shell.disk.has_started(ONE));
    shell.renew(1_000);
    shell.write_all();
    assert!(shell.launched.contains(&ONE));
}

#[test]
fn a_start_that_is_written_down_after_the_end_of_the_lease_waits_for_the_next() {
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
fn a_program_that_is_loaded_after_the_end_of_the_lease_is_frozen() {
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
fn a_launch_that_was_held_back_takes_place_under_the_next_lease() {
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
    assert_eq!(shell.core.verdict(ONE), Some(Verdict::ByItself));
    shell.pass(0, 1_100);
    assert_eq!(shell.core.verdict(ONE), Some(Verdict::TimedOut));
}

/// The fuse acts while the supervisor is stopped; the supervisor gets the notice only afterwards.
#[test]
fn time_counts_as_frozen_since_the_fuse_froze_it() {
    let mut shell = running(terms(false, Some(3_000)));
    shell.pass(0, 900);
    let since = Moment { boot: shell.now.boot + 100, asleep: 0 };
    shell.now.boot += 10_000;
    shell.tell(Event::FuseFroze { since });
    shell.renew(60_000);
    shell.pass(0, 1_900);
    assert_eq!(shell.core.verdict(ONE), Some(Verdict::ByItself), "two seconds were left");
    shell.pass(0, 200);
    assert_eq!(shell.core.verdict(ONE), Some(Verdict::TimedOut));
}

/// The same for a program that is still being loaded; the renewal is processed first.
#[test]
fn a_launch_that_the_fuse_froze_is_not_timed_out_before_the_fuse_is_heard() {
    let mut shell = Shell::new();
    shell.renew(1_000);
    shell.assign(ONE, terms(false, Some(3_000)));
    shell.write_all();
    shell.begin(ONE);
    shell.pass(0, 900);
    let since = Moment { boot: shell.now.boot + 100, asleep: 0 };
    shell.now.boot += 10_000;
    shell.renew(60_000);
    shell.tell(Event::FuseFroze { since });
    shell.pass(0, 1_900);
    assert!(!shell.processes[&ONE].was_killed, "a hundred milliseconds were left");
    shell.pass(0, 200);
    assert!(shell.processes[&ONE].was_killed);
}

#[test]
fn an_execution_that_was_frozen_for_too_long_is_killed() {
    let mut shell = running(terms(false, None));
    shell.pass(0, ORPHAN_LIMIT);
    assert!(shell.processes[&ONE].is_alive);
    // No server can be reached while the machine is suspended, so this time does not count.
    shell.pass(3 * ORPHAN_LIMIT, 500);
    assert!(shell.processes[&ONE].is_alive);
    shell.pass(0, 1_000);
    assert!(shell.processes[&ONE].was_killed);
    assert_eq!(shell.core.verdict(ONE), Some(Verdict::Orphaned));
}

#[test]
fn a_lease_that_is_shorter_than_the_known_one_changes_nothing() {
    let mut shell = running(terms(false, None));
    shell.renew(500);
    assert_eq!(shell.core.lease_until(), shell.now.boot + 1_000);
}

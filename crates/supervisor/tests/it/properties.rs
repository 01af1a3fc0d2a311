//! Properties for random event orders: no execution is launched twice or runs without a lease, and all of them end.

use model::ExecutionId;
use mutation::Mutation;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use supervisor::{Event, ExecutionPolicy, Holding};

use crate::shell::Shell;

/// One random step; its numbers select among the existing executions.
#[derive(Debug, Clone)]
enum Step {
    Assign { execution: u8, at_most_once: bool, timeout: Option<u64> },
    Stop { execution: u8, grace: u64, discard: bool },
    CheckFailed(u8),
    Renew(u64),
    Write,
    Compact,
    Begin(u8),
    Load(u8),
    Exit(u8),
    Reap(u8, bool),
    Store,
    Pass { suspended: u64, awake: u64 },
    Fuse { tells: bool },
    Acknowledge,
    Connect,
    Crash(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let timeout = prop::option::of(500u64..5_000);
    let asleep = prop_oneof![4 => Just(0u64), 1 => 1u64..20_000];
    prop_oneof![
        6 => (any::<u8>(), any::<bool>(), timeout).prop_map(|(execution, at_most_once, timeout)| Step::Assign {
            execution,
            at_most_once,
            timeout
        }),
        3 => (any::<u8>(), prop_oneof![Just(0u64), 1u64..2_000], any::<bool>())
            .prop_map(|(execution, grace, discard)| Step::Stop { execution, grace, discard }),
        1 => any::<u8>().prop_map(Step::CheckFailed),
        6 => (1u64..6_000).prop_map(Step::Renew),
        8 => Just(Step::Write),
        2 => Just(Step::Compact),
        8 => any::<u8>().prop_map(Step::Begin),
        8 => any::<u8>().prop_map(Step::Load),
        4 => any::<u8>().prop_map(Step::Exit),
        6 => (any::<u8>(), any::<bool>()).prop_map(|(execution, outputs)| Step::Reap(execution, outputs)),
        2 => Just(Step::Store),
        8 => (asleep, 1u64..4_000).prop_map(|(asleep, awake)| Step::Pass { suspended: asleep, awake }),
        3 => any::<bool>().prop_map(|tells| Step::Fuse { tells }),
        3 => Just(Step::Acknowledge),
        1 => Just(Step::Connect),
        1 => (0usize..8).prop_map(Step::Crash),
    ]
}

/// One of five executions.
fn execution(number: u8) -> ExecutionId {
    ExecutionId::from_bits(u128::from(number % 5) + 1)
}

fn play(shell: &mut Shell, step: &Step) {
    match *step {
        Step::Assign { execution: number, at_most_once, timeout } => {
            shell.assign(execution(number), ExecutionPolicy { at_most_once, timeout, grace: 300 });
        }
        Step::Stop { execution: number, grace, discard } => shell.stop(execution(number), grace, discard),
        Step::CheckFailed(number) => shell.check_failed(execution(number)),
        Step::Renew(millis) => shell.renew(millis),
        Step::Write => shell.write(),
        Step::Compact => shell.compact(),
        Step::Begin(number) => shell.begin(execution(number)),
        Step::Load(number) => shell.load(execution(number)),
        Step::Exit(number) => shell.exit(execution(number)),
        Step::Reap(number, outputs) => shell.reap(execution(number), outputs),
        Step::Store => shell.store(),
        Step::Pass { suspended: asleep, awake } => shell.pass(asleep, awake),
        Step::Fuse { tells } if shell.has_fuse => shell.fuse(tells),
        Step::Fuse { .. } => {}
        Step::Acknowledge => shell.acknowledge(),
        Step::Connect => shell.tell(Event::AgentConnected { slots: shell.slots }),
        Step::Crash(entries) => shell.crash(entries),
    }
}

/// The steps of a world, and whether it has a fuse.
fn world(most: usize) -> impl Strategy<Value = (Vec<Step>, bool)> {
    (prop::collection::vec(step(), 1..most), prop::bool::weighted(0.8))
}

fn play_all(steps: &[Step], has_fuse: bool) {
    let mut shell = Shell::new();
    shell.has_fuse = has_fuse;
    shell.tell(Event::AgentConnected { slots: shell.slots });
    for step in steps {
        play(&mut shell, step);
        shell.pass(0, 0);
        shell.check();
    }
    shell.settle();
    let left: Vec<Holding> = shell.core.holdings().collect();
    assert_eq!(left, []);
    assert!(shell.core.is_idle());
}

/// A property that finds no deliberate bug proves nothing.
#[test]
fn every_deliberate_bug_of_the_supervisor_is_found() {
    let ours = Mutation::ALL.iter().filter(|mutation| mutation.part() == "supervisor");
    for mutation in ours {
        let _guard = mutation::enable_in_thread(*mutation);
        let config =
            Config { cases: 10_000, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
        // The same worlds in each run, so that a rare bug is always found.
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let found = TestRunner::new_with_rng(config, rng).run(&world(120), |(steps, has_fuse)| {
            play_all(&steps, has_fuse);
            Ok(())
        });
        assert!(found.is_err(), "{mutation} is not found");
    }
}

proptest! {
    #[test]
    fn no_execution_runs_twice_or_without_a_lease_and_all_end((steps, has_fuse) in world(120)) {
        play_all(&steps, has_fuse);
    }

    #[test]
    fn a_shutdown_always_completes(steps in prop::collection::vec(step(), 1..60)) {
        let mut shell = Shell::new();
        shell.tell(Event::AgentConnected { slots: shell.slots });
        steps.iter().for_each(|step| play(&mut shell, step));
        shell.tell(Event::ShutDown);
        for _ in 0..20 {
            shell.write_all();
            let ids: Vec<_> = shell.queued.keys().chain(shell.processes.keys()).copied().collect();
            for id in ids {
                shell.begin(id);
                shell.load(id);
                shell.reap(id, false);
            }
            shell.pass(0, 200);
        }
        prop_assert!(shell.core.has_shut_down(), "{:?}", shell.processes);
    }
}

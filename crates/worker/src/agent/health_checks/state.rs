//! When to run the health checks of an execution, and what their results mean.
//!
//! ```text
//! STARTING ─ startup check succeeds ─ readiness check succeeds ─> HEALTHY <─ readiness check ─> UNHEALTHY
//!     └──────── startup check fails ────> the execution ends <─── liveness check fails ─────────────┘
//! ```
//!
//! The semantics are those of probes in Kubernetes: a check succeeds or fails after a number of consecutive results.
//! While the startup check has not succeeded, no other check runs. This module does no I/O: the caller passes the time
//! and the results.
//!
//! # Invariants
//! - At most one check of a kind runs at a time, and `interval` passes between two starts. A caller that was suspended
//!   starts each check once, not once per missed interval.
//! - An ignored result changes neither counters nor status.
//! - An execution must end only after `failure_threshold` consecutive failures of its startup or liveness check. The
//!   failures are then counted again, because the request to end it may be lost.

use model::spec::{HealthCheck, HealthChecks, HealthStatus};

use crate::clock::BootMillis;

/// Maximum length of a text about a failure, in characters.
const DETAIL_CHARS_MAX: usize = 200;

/// Kind of a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    /// Returns the name in the spec of a job.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CheckResult {
    Succeeded,
    /// Failed, with the reason.
    Failed(String),
    /// Proves nothing, because the execution may have been frozen during the check.
    Ignored,
}

/// Status of an execution, with the last failure; the text is empty if the execution is healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) status: HealthStatus,
    pub(super) detail: String,
}

/// Why an execution must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MustEnd {
    /// Start of the first of the consecutive failed checks.
    pub(super) since: BootMillis,
    pub(super) detail: String,
}

/// A check, with its counters.
#[derive(Debug)]
struct Check {
    kind: Kind,
    interval: u64,
    failure_threshold: u32,
    success_threshold: u32,
    /// Earliest start of the next check.
    next_at: BootMillis,
    /// Start of the running check.
    running_since: Option<BootMillis>,
    /// Number of consecutive failures and successes; one of them is 0.
    failures: u32,
    successes: u32,
    /// Start of the first of the consecutive failures.
    failing_since: BootMillis,
}

impl Check {
    fn new(kind: Kind, check: &HealthCheck, started: BootMillis) -> Self {
        Self {
            kind,
            interval: check.interval.as_millis(),
            failure_threshold: check.failure_threshold.max(1),
            success_threshold: check.success_threshold.max(1),
            next_at: started.saturating_add(check.initial_delay.as_millis()),
            running_since: None,
            failures: 0,
            successes: 0,
            failing_since: 0,
        }
    }
}

/// Result of the readiness check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    /// It has not succeeded yet.
    Pending,
    Ready,
    NotReady,
}

/// State of the health checks of one execution.
#[derive(Debug)]
pub(super) struct State {
    checks: Vec<Check>,
    /// Whether the startup check has succeeded, or there is none.
    has_started: bool,
    readiness: Readiness,
    /// Whether the liveness check has succeeded since it failed last.
    is_live: bool,
    /// Last failure.
    detail: String,
}

impl State {
    /// Creates the state of an execution that was started at `started`. `earlier` is its health according to an
    /// earlier agent.
    pub(super) fn new(checks: &HealthChecks, started: BootMillis, earlier: Option<Health>) -> Self {
        let all = [
            (Kind::Startup, &checks.startup),
            (Kind::Readiness, &checks.readiness),
            (Kind::Liveness, &checks.liveness),
        ];
        let all =
            all.into_iter().filter_map(|(kind, check)| Some(Check::new(kind, check.as_ref()?, started)));
        let (has_startup, has_readiness) = (checks.startup.is_some(), checks.readiness.is_some());
        let mut state = Self {
            checks: all.collect(),
            has_started: !has_startup,
            readiness: if has_readiness { Readiness::Pending } else { Readiness::Ready },
            is_live: true,
            detail: String::new(),
        };
        if let Some(Health { status, detail }) = earlier {
            state.detail = detail;
            match status {
                HealthStatus::Starting => {}
                HealthStatus::Healthy => state.resume(Readiness::Ready),
                HealthStatus::Unhealthy if has_readiness => state.resume(Readiness::NotReady),
                HealthStatus::Unhealthy => {
                    state.resume(Readiness::Ready);
                    state.is_live = false;
                }
            }
        }
        state
    }

    /// Skips the startup check, which has succeeded before.
    fn resume(&mut self, readiness: Readiness) {
        self.readiness = readiness;
        self.end_startup();
    }

    fn end_startup(&mut self) {
        self.has_started = true;
        self.checks.retain(|check| check.kind != Kind::Startup);
    }

    /// Returns the checks to start at `now`, and marks them as running.
    pub(super) fn start_due(&mut self, now: BootMillis) -> Vec<Kind> {
        let has_started = self.has_started;
        let is_due = |check: &&mut Check| may_run(check, has_started) && check.next_at <= now;
        let due = self.checks.iter_mut().filter(is_due).map(|check| {
            check.running_since = Some(now);
            check.kind
        });
        due.collect()
    }

    /// Returns when the next check is to be started; `None` if there is none that does not run already.
    pub(super) fn next_at(&self) -> Option<BootMillis> {
        self.checks.iter().filter(|check| may_run(check, self.has_started)).map(|check| check.next_at).min()
    }

    /// Records the result of a running check. Returns why the execution must end, if it must.
    pub(super) fn finish(&mut self, kind: Kind, now: BootMillis, result: CheckResult) -> Option<MustEnd> {
        let check = self.checks.iter_mut().find(|check| check.kind == kind)?;
        let started = check.running_since.take()?;
        check.next_at = started.saturating_add(check.interval).max(now);
        match result {
            CheckResult::Ignored => None,
            CheckResult::Succeeded => {
                check.failures = 0;
                check.successes = check.successes.saturating_add(1);
                if check.successes >= check.success_threshold {
                    self.succeeded(kind);
                }
                None
            }
            CheckResult::Failed(reason) => {
                check.successes = 0;
                if check.failures == 0 {
                    check.failing_since = started;
                }
                check.failures = check.failures.saturating_add(1);
                let (failures, since) = (check.failures, check.failing_since);
                let has_failed = failures >= check.failure_threshold;
                if has_failed && kind != Kind::Readiness {
                    check.failures = 0;
                }
                let reason = reason.trim();
                self.detail = one_line(&format!("{} check failed: {reason}", kind.name()));
                if !has_failed || !self.failed(kind) {
                    return None;
                }
                let times = if failures == 1 { "once".to_owned() } else { format!("{failures} times") };
                let detail = one_line(&format!("{} check failed {times}: {reason}", kind.name()));
                Some(MustEnd { since, detail })
            }
        }
    }

    fn succeeded(&mut self, kind: Kind) {
        match kind {
            Kind::Startup => self.end_startup(),
            Kind::Readiness => self.readiness = Readiness::Ready,
            Kind::Liveness => self.is_live = true,
        }
    }

    /// Returns whether the execution must end.
    fn failed(&mut self, kind: Kind) -> bool {
        match kind {
            Kind::Startup => true,
            Kind::Readiness => {
                if self.readiness == Readiness::Ready {
                    self.readiness = Readiness::NotReady;
                }
                false
            }
            Kind::Liveness => {
                self.is_live = false;
                true
            }
        }
    }

    /// Returns the current health.
    pub(super) fn health(&self) -> Health {
        let status = match self.readiness {
            _ if !self.is_live => HealthStatus::Unhealthy,
            _ if !self.has_started => HealthStatus::Starting,
            Readiness::Pending => HealthStatus::Starting,
            Readiness::Ready => HealthStatus::Healthy,
            Readiness::NotReady => HealthStatus::Unhealthy,
        };
        let detail = if status == HealthStatus::Healthy { String::new() } else { self.detail.clone() };
        Health { status, detail }
    }
}

/// Returns whether the check may be started, apart from its time.
fn may_run(check: &Check, has_started: bool) -> bool {
    check.running_since.is_none() && (has_started || check.kind == Kind::Startup)
}

/// Returns the text in one line of at most [`DETAIL_CHARS_MAX`] characters.
fn one_line(text: &str) -> String {
    let printable = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(DETAIL_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use model::Duration;
    use proptest::prelude::*;

    use super::*;

    const START: BootMillis = 1_000;
    const INTERVAL: u64 = 100;

    fn check(failure_threshold: u32) -> HealthCheck {
        let interval = Duration::from_millis(INTERVAL);
        HealthCheck { interval, failure_threshold, ..HealthCheck::new() }
    }

    fn failed() -> CheckResult {
        CheckResult::Failed("refused".into())
    }

    /// A state on virtual time; each check ends at the time at which it starts.
    struct Test {
        state: State,
        now: BootMillis,
    }

    impl Test {
        fn new(checks: &HealthChecks) -> Self {
            Self { state: State::new(checks, START, None), now: START }
        }

        /// Waits for the next check and ends it with `result`; returns the reason why the execution must end.
        fn next(&mut self, result: CheckResult) -> Option<String> {
            self.now = self.now.max(self.state.next_at().unwrap());
            let [kind] = self.state.start_due(self.now)[..] else { panic!("not one check is due") };
            self.state.finish(kind, self.now, result).map(|end| end.detail)
        }

        fn status(&self) -> HealthStatus {
            self.state.health().status
        }
    }

    #[test]
    fn an_execution_without_checks_is_healthy() {
        let state = State::new(&HealthChecks::default(), START, None);
        assert_eq!(state.health(), Health { status: HealthStatus::Healthy, detail: String::new() });
        assert_eq!(state.next_at(), None);
    }

    #[test]
    fn only_the_startup_check_runs_until_it_succeeds() {
        let checks =
            HealthChecks { startup: Some(check(3)), readiness: Some(check(1)), liveness: Some(check(1)) };
        let mut test = Test::new(&checks);
        assert_eq!(test.state.start_due(START), [Kind::Startup]);
        assert_eq!(test.state.finish(Kind::Startup, START + 5, failed()), None);
        assert_eq!(test.status(), HealthStatus::Starting);
        assert_eq!(test.state.next_at(), Some(START + INTERVAL));
        test.now = START + INTERVAL;
        assert_eq!(test.state.start_due(test.now), [Kind::Startup]);
        test.state.finish(Kind::Startup, test.now, CheckResult::Succeeded);
        assert_eq!(test.status(), HealthStatus::Starting, "the readiness check has not succeeded");
        assert_eq!(test.state.start_due(test.now), [Kind::Readiness, Kind::Liveness]);
        test.state.finish(Kind::Readiness, test.now, CheckResult::Succeeded);
        assert_eq!(test.status(), HealthStatus::Healthy);
    }

    #[test]
    fn a_startup_check_that_fails_too_often_ends_the_execution() {
        let mut test = Test::new(&HealthChecks { startup: Some(check(3)), ..HealthChecks::default() });
        assert_eq!((test.next(failed()), test.next(failed())), (None, None));
        assert_eq!(test.next(failed()).as_deref(), Some("startup check failed 3 times: refused"));
        assert_eq!(test.status(), HealthStatus::Starting);
        assert_eq!((test.next(failed()), test.next(failed())), (None, None));
        assert!(test.next(failed()).is_some(), "the request may be lost, so it is repeated");
    }

    #[test]
    fn readiness_failures_make_an_execution_unhealthy_and_do_not_end_it() {
        let mut test = Test::new(&HealthChecks { readiness: Some(check(2)), ..HealthChecks::default() });
        for _ in 0..5 {
            assert_eq!(test.next(failed()), None);
            assert_eq!(test.status(), HealthStatus::Starting, "it has never succeeded");
        }
        test.next(CheckResult::Succeeded);
        assert_eq!(test.status(), HealthStatus::Healthy);
        test.next(failed());
        assert_eq!(test.status(), HealthStatus::Healthy, "one failure is below the threshold");
        assert_eq!(test.next(failed()), None);
        let detail = "readiness check failed: refused".to_owned();
        assert_eq!(test.state.health(), Health { status: HealthStatus::Unhealthy, detail });
        test.next(CheckResult::Succeeded);
        assert_eq!(test.state.health(), Health { status: HealthStatus::Healthy, detail: String::new() });
    }

    #[test]
    fn a_success_threshold_above_one_needs_consecutive_successes() {
        let readiness = HealthCheck { success_threshold: 2, ..check(1) };
        let mut test = Test::new(&HealthChecks { readiness: Some(readiness), ..HealthChecks::default() });
        for result in [CheckResult::Succeeded, failed(), CheckResult::Succeeded] {
            test.next(result.clone());
            assert_eq!(test.status(), HealthStatus::Starting);
        }
        test.next(CheckResult::Succeeded);
        assert_eq!(test.status(), HealthStatus::Healthy);
    }

    #[test]
    fn only_consecutive_liveness_failures_end_the_execution() {
        let mut test = Test::new(&HealthChecks { liveness: Some(check(2)), ..HealthChecks::default() });
        assert_eq!(test.status(), HealthStatus::Healthy, "without a readiness check it is ready at once");
        for result in [failed(), CheckResult::Succeeded, failed(), CheckResult::Ignored] {
            assert_eq!(test.next(result.clone()), None);
        }
        assert_eq!(test.next(failed()).as_deref(), Some("liveness check failed 2 times: refused"));
        assert_eq!(test.status(), HealthStatus::Unhealthy);
        test.next(CheckResult::Succeeded);
        assert_eq!(test.status(), HealthStatus::Healthy);
    }

    #[test]
    fn the_reason_to_end_has_the_start_of_the_first_failure() {
        let checks = HealthChecks { liveness: Some(check(2)), ..HealthChecks::default() };
        let mut state = State::new(&checks, START, None);
        let mut at = START;
        let mut next = |result| {
            at = at.max(state.next_at().unwrap());
            assert_eq!(state.start_due(at), [Kind::Liveness]);
            state.finish(Kind::Liveness, at + 5, result)
        };
        assert_eq!(next(failed()), None);
        assert_eq!(next(CheckResult::Succeeded), None);
        assert_eq!(next(failed()), None);
        assert_eq!(next(failed()).unwrap().since, START + 2 * INTERVAL);
    }

    #[test]
    fn the_first_check_waits_for_its_initial_delay() {
        let liveness = HealthCheck { initial_delay: Duration::from_millis(500), ..check(1) };
        let mut test = Test::new(&HealthChecks { liveness: Some(liveness), ..HealthChecks::default() });
        assert_eq!(test.state.next_at(), Some(START + 500));
        assert!(test.state.start_due(START + 499).is_empty());
    }

    #[test]
    fn a_suspended_agent_does_not_start_missed_checks() {
        let mut test = Test::new(&HealthChecks { liveness: Some(check(3)), ..HealthChecks::default() });
        assert_eq!(test.state.start_due(START), [Kind::Liveness]);
        let later = START + 50 * INTERVAL;
        assert!(test.state.start_due(later).is_empty(), "the first one is still running");
        test.state.finish(Kind::Liveness, later, CheckResult::Succeeded);
        assert_eq!(test.state.start_due(later), [Kind::Liveness]);
        test.state.finish(Kind::Liveness, later, CheckResult::Succeeded);
        assert_eq!(test.state.next_at(), Some(later + INTERVAL));
    }

    #[test]
    fn a_new_agent_continues_with_the_status_of_the_previous_one() {
        let checks =
            HealthChecks { startup: Some(check(1)), readiness: Some(check(2)), liveness: Some(check(2)) };
        for status in [HealthStatus::Healthy, HealthStatus::Unhealthy] {
            let detail = if status == HealthStatus::Healthy { "" } else { "readiness check failed: x" };
            let earlier = Health { status, detail: detail.into() };
            let mut state = State::new(&checks, START, Some(earlier.clone()));
            assert_eq!(state.health(), earlier);
            assert_eq!(state.start_due(START), [Kind::Readiness, Kind::Liveness]);
        }
        let earlier = Health { status: HealthStatus::Starting, detail: String::new() };
        assert_eq!(State::new(&checks, START, Some(earlier)).start_due(START), [Kind::Startup]);
    }

    #[test]
    fn a_text_about_a_failure_is_one_short_line() {
        let mut test = Test::new(&HealthChecks { startup: Some(check(1)), ..HealthChecks::default() });
        test.next(CheckResult::Failed(" a\nb\t".into()));
        assert_eq!(test.state.health().detail, "startup check failed: a b");
        let end = test.next(CheckResult::Failed("é".repeat(1_000))).unwrap();
        assert_eq!(end.chars().count(), DETAIL_CHARS_MAX);
        assert_eq!(test.state.health().detail.chars().count(), DETAIL_CHARS_MAX);
    }

    fn any_check() -> impl Strategy<Value = Option<HealthCheck>> {
        prop::option::of((1u64..500, 0u64..500, 1u32..4, 1u32..4).prop_map(
            |(interval, delay, failures, successes)| HealthCheck {
                interval: Duration::from_millis(interval),
                initial_delay: Duration::from_millis(delay),
                failure_threshold: failures,
                success_threshold: successes,
                ..HealthCheck::new()
            },
        ))
    }

    fn any_checks() -> impl Strategy<Value = HealthChecks> {
        (any_check(), any_check(), any_check()).prop_map(|(startup, readiness, liveness)| HealthChecks {
            startup,
            readiness,
            liveness,
        })
    }

    fn any_result() -> impl Strategy<Value = CheckResult> {
        prop_oneof![Just(CheckResult::Succeeded), Just(failed()), Just(CheckResult::Ignored)]
    }

    proptest! {
        /// Results arrive in any order and at any time, and the caller may be suspended between them.
        #[test]
        fn checks_never_overlap_and_only_consecutive_failures_end_an_execution(
            checks in any_checks(),
            steps in prop::collection::vec((0u64..1_000, any::<prop::sample::Index>(), any_result()), 1..100),
        ) {
            let mut state = State::new(&checks, START, None);
            let (mut now, mut running) = (START, Vec::<Kind>::new());
            let mut last_start = [None::<BootMillis>; 3];
            let mut failures = [0u32; 3];
            let mut has_started = checks.startup.is_none();
            let of = |kind| match kind {
                Kind::Startup => checks.startup.as_ref().unwrap(),
                Kind::Readiness => checks.readiness.as_ref().unwrap(),
                Kind::Liveness => checks.liveness.as_ref().unwrap(),
            };
            let mut startup_successes = 0;
            for (pause, pick, result) in steps {
                now += pause;
                for kind in state.start_due(now) {
                    prop_assert!(!running.contains(&kind), "{kind:?} runs twice");
                    prop_assert!(has_started || kind == Kind::Startup, "{kind:?} runs before the startup check");
                    prop_assert!(now >= START + of(kind).initial_delay.as_millis());
                    if let Some(last) = last_start[kind as usize].replace(now) {
                        prop_assert!(now >= last + of(kind).interval.as_millis(), "{kind:?} runs too often");
                    }
                    running.push(kind);
                }
                if running.is_empty() {
                    continue;
                }
                let kind = running.swap_remove(pick.index(running.len()));
                let count = &mut failures[kind as usize];
                match &result {
                    CheckResult::Succeeded => *count = 0,
                    CheckResult::Failed(_) => *count += 1,
                    CheckResult::Ignored => {}
                }
                if kind == Kind::Startup {
                    startup_successes = match &result {
                        CheckResult::Succeeded => startup_successes + 1,
                        CheckResult::Failed(_) => 0,
                        CheckResult::Ignored => startup_successes,
                    };
                    has_started |= startup_successes >= of(kind).success_threshold;
                }
                let must_end = kind != Kind::Readiness && *count == of(kind).failure_threshold;
                prop_assert_eq!(state.finish(kind, now, result).is_some(), must_end);
                if must_end {
                    *count = 0;
                }
                let health = state.health();
                prop_assert!(has_started || health.status == HealthStatus::Starting);
                prop_assert!(health.status != HealthStatus::Healthy || health.detail.is_empty());
                prop_assert!(health.status != HealthStatus::Unhealthy || !health.detail.is_empty());
            }
            prop_assert!(state.next_at().is_some() || !running.is_empty() || state.checks.is_empty());
        }
    }
}

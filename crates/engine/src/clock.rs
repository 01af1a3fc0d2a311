//! The two clocks of an engine, and the rule for accepting the wall clock.
//!
//! Engine time is the greatest accepted wall time, and the store keeps it. A wall clock that leapt ahead by ten days
//! and was corrected would therefore stop all schedules and retries for ten days. So a forward leap of the wall clock
//! is accepted only as far as the steady clock confirms it.
//!
//! # Invariants
//! - Engine time is ahead of what the steady clock confirms by [`LEAP_MAX`] at most; the same amount again is accepted
//!   within an hour ([`DRIFT_DIVISOR`]), so that the correction of a small error is followed.
//! - While a leap is refused, engine time advances at the rate of the steady clock from its value before the
//!   leap. It stands still only if it is already ahead by [`LEAP_MAX`].
//! - A refused leap of up to a day ([`PAUSE_MAX`]) is accepted once the clock has stood there for half an hour
//!   ([`PAUSE_ACCEPTED_AFTER`]): a machine that was paused from outside looks like this, for none of its clocks ran.
//! - Engine time never runs backwards; it waits for a wall clock that was set back.
//!
//! The steady clock does not span a restart of the process: the driver passes a wall time that it has
//! checked. An engine that is loaded again in the same process starts with the time confirmed by the previous
//! engine, unless the wall clock is behind it.
//!
//! # Cost
//! O(1) for each reading. The state is one [`ClockFilter`] per engine.

use model::{Duration, Timestamp};
use mutation::{Mutation, is_on};

/// The current time on two clocks.
///
/// Everything with a date follows the wall clock: when a job becomes ready, the times in its history.
/// Durations follow the steady clock: leases, reminders, rates. So setting the wall clock, by a second or by
/// a day, declares no worker lost too early and keeps no lost worker alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The wall clock. Engine time is the greatest accepted value.
    pub wall: Timestamp,
    /// A clock that is never set and also counts while the machine sleeps; its origin is arbitrary. It
    /// confirms how far the wall clock can have advanced.
    pub steady: Timestamp,
}

/// For tests and the simulator, where both clocks are the same.
impl From<Timestamp> for Now {
    fn from(now: Timestamp) -> Self {
        Self { wall: now, steady: now }
    }
}

/// Maximum accepted lead of the wall clock over the time that the steady clock confirms.
pub const LEAP_MAX: Duration = Duration::from_secs(5 * 60);
/// How long the wall clock must stay ahead by the same amount before the leap is treated as a pause of the
/// machine. A wrong clock is usually corrected sooner.
const PAUSE_ACCEPTED_AFTER: Duration = Duration::from_secs(30 * 60);
/// Maximum duration of such a pause.
const PAUSE_MAX: Duration = Duration::from_hours(24);
/// The accepted part of a refused leap grows by one second per this many seconds: by [`LEAP_MAX`] an hour.
const DRIFT_DIVISOR: i64 = 12;
/// Earlier readings come from a wall clock that was never set: they are followed, but never used as a
/// reference. The start of 2025.
const NEVER_SET: Timestamp = Timestamp::from_micros(1_735_689_600_000_000);

/// Decides which readings of the wall clock are accepted.
#[derive(Debug, Default)]
pub(crate) struct ClockFilter {
    /// Accepted offset from the steady clock to the wall clock, in microseconds; `None` before the first
    /// plausible reading.
    offset: Option<i64>,
    /// The steady time of the last reading.
    read_at: Timestamp,
    /// The last accepted wall time, and engine time at that reading.
    wall: Timestamp,
    engine: Timestamp,
    /// How far the last reading was ahead of `wall`.
    refused: Duration,
    /// Steady time since which the wall clock has been ahead by the same amount, and the offset between the
    /// clocks then; `None` while the wall clock is accepted.
    ahead_since: Option<(Timestamp, i64)>,
}

impl ClockFilter {
    /// Records a reading and returns the accepted wall time. `engine` is the engine time so far.
    pub(crate) fn read(&mut self, now: Now, engine: Timestamp) -> Timestamp {
        self.accept_pause(now);
        let wall = self.accepted_wall_time(now);
        self.refused = now.wall.since(wall);
        (self.wall, self.engine) = (wall, engine.max(wall));
        let passed = now.steady.since(self.read_at);
        self.read_at = self.read_at.max(now.steady);
        if self.refused == Duration::ZERO && now.wall >= NEVER_SET && now.wall >= engine {
            let (between, creep) = (offset(now), micros(passed) / DRIFT_DIVISOR);
            // A clock that was set back and is then corrected is no leap: the accepted offset stays.
            self.offset =
                Some(self.offset.map_or(between, |old| between.min(old.saturating_add(creep)).max(old)));
        }
        wall
    }

    /// Accepts a wall clock that has been ahead by the same amount for long enough.
    fn accept_pause(&mut self, now: Now) {
        let refused = now.wall.since(self.accepted_wall_time(now));
        if refused == Duration::ZERO {
            self.ahead_since = None;
            return;
        }
        let between = offset(now);
        match self.ahead_since {
            Some((since, first)) if between.abs_diff(first) <= micros(LEAP_MAX).unsigned_abs() => {
                if refused <= PAUSE_MAX && now.steady.since(since) >= PAUSE_ACCEPTED_AFTER {
                    (self.offset, self.ahead_since) = (Some(between), None);
                }
            }
            _ => self.ahead_since = Some((now.steady, between)),
        }
    }

    /// Returns the accepted wall time without recording the reading.
    pub(crate) fn accepted_wall_time(&self, now: Now) -> Timestamp {
        let Some(believed) = self.offset else { return now.wall };
        if is_on(Mutation::EngineAcceptsClockJumps) {
            return now.wall;
        }
        let most = micros(LEAP_MAX);
        if offset(now).saturating_sub(believed) <= most {
            return now.wall;
        }
        let confirmed = Timestamp::from_micros(now.steady.as_micros().saturating_add(believed));
        // Accepted time stays accepted: otherwise engine time would stand still until the confirmed time
        // reaches it.
        let reached = self.engine + now.steady.since(self.read_at);
        confirmed.max(reached.min(confirmed + LEAP_MAX))
    }

    /// Returns the wall time that the steady clock confirms; `None` without a reference reading.
    pub(crate) fn confirmed_wall_time(&self, now: Now) -> Option<Timestamp> {
        let micros = |between| now.steady.as_micros().saturating_add(between);
        self.offset.map(|between| Timestamp::from_micros(micros(between)))
    }

    /// Accepts the wall time of a start, unless it is behind engine time. Then the clock is wrong, or was
    /// wrong when the newest rows were written, and it is no reference until it has caught up.
    pub(crate) fn begin(&mut self, now: Now, engine: Timestamp) {
        let plausible = now.wall >= NEVER_SET.max(engine);
        *self = Self {
            offset: plausible.then(|| offset(now)),
            read_at: now.steady,
            wall: now.wall,
            engine: now.wall.max(engine),
            ..Self::default()
        };
    }

    /// Returns the last accepted wall time; `engine` before the first reading.
    pub(crate) fn wall(&self, engine: Timestamp) -> Timestamp {
        if self.wall == Timestamp::default() { engine } else { self.wall }
    }

    pub(crate) fn view(&self, engine: Timestamp) -> ClockView {
        ClockView { ahead: engine.since(self.wall(engine)), refused: self.refused }
    }
}

fn offset(now: Now) -> i64 {
    now.wall.as_micros().saturating_sub(now.steady.as_micros())
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).saturating_mul(1_000)
}

/// Difference between engine time and the wall clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockView {
    /// How far engine time is ahead of the wall clock. During this time no timer at a wall time fires.
    pub ahead: Duration,
    /// How far the wall clock is ahead of its accepted time; zero if it is accepted.
    pub refused: Duration,
}

/// Maximum difference between engine time and the wall clock that is not reported as a problem.
pub(crate) const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(60);

impl ClockView {
    /// Describes the problem and its fix; `None` if there is no problem.
    pub fn trouble(&self) -> Option<String> {
        if self.refused > CLOCK_DIFFERENCE_MAX {
            return Some(format!(
                "the wall clock jumped ahead by {}, and no other clock confirms it: engine time does not follow; \
                 correct the clock, or restart the server if the clock is right (after 30 minutes, the server follows \
                 a jump of up to a day by itself)",
                self.refused
            ));
        }
        (self.ahead > CLOCK_DIFFERENCE_MAX).then(|| {
            format!(
                "engine time is {} ahead of the wall clock: schedules and retries wait until the clock has caught up; \
                 correct the clock, or stop the servers and run `belfry store reset-clock`",
                self.ahead
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BEGIN: i64 = 1_800_000_000;
    const DAY: i64 = 24 * 3_600;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    /// A machine whose clocks started at `BEGIN` and zero, and the accepted time of an engine on it.
    struct Machine {
        clock_filter: ClockFilter,
        engine: Timestamp,
        steady: i64,
    }

    impl Machine {
        fn new() -> Self {
            let mut belief = ClockFilter::default();
            belief.begin(Now { wall: at(BEGIN), steady: at(0) }, at(0));
            Self { clock_filter: belief, engine: at(BEGIN), steady: 0 }
        }

        /// Lets time pass with a wall clock that is `wrong` seconds ahead. Returns the error of engine time
        /// in seconds.
        fn pass(&mut self, seconds: i64, wrong: i64) -> i64 {
            self.steady += seconds;
            let now = Now { wall: at(BEGIN + self.steady + wrong), steady: at(self.steady) };
            self.engine = self.engine.max(self.clock_filter.read(now, self.engine));
            (self.engine.as_micros() - at(BEGIN + self.steady).as_micros()) / 1_000_000
        }
    }

    #[test]
    fn leap_is_refused_and_engine_time_continues() {
        let mut machine = Machine::new();
        assert_eq!(machine.pass(10, 0), 0);
        assert_eq!(machine.pass(4, 10 * DAY), 0);
        let view = machine.clock_filter.view(machine.engine);
        assert_eq!(view.refused, Duration::from_hours(240));
        assert!(view.trouble().unwrap().contains("jumped ahead by 10d"), "{:?}", view.trouble());
        assert_eq!(machine.pass(3_600, 10 * DAY), 0);
        assert_eq!(machine.pass(1, 0), 0);
        assert_eq!(machine.clock_filter.view(machine.engine).trouble(), None);
    }

    /// A hypervisor that pauses a machine stops all of its clocks; afterwards the wall clock is set.
    #[test]
    fn the_clock_of_a_machine_that_was_paused_is_followed_after_half_an_hour() {
        let mut machine = Machine::new();
        machine.pass(10, 0);
        for _ in 0..30 {
            assert_eq!(machine.pass(60, 8 * 3_600), 0);
        }
        assert_eq!(machine.pass(60, 8 * 3_600), 8 * 3_600);
        assert_eq!(machine.clock_filter.view(machine.engine).trouble(), None);
    }

    #[test]
    fn a_leap_that_changes_or_is_longer_than_a_day_is_not_taken_for_a_pause() {
        let mut machine = Machine::new();
        for minute in 0..120 {
            assert_eq!(machine.pass(60, 3_600 + minute / 20 * 1_800), 0, "{minute}");
        }
        for _ in 0..120 {
            assert_eq!(machine.pass(60, 25 * 3_600), 0);
        }
    }

    #[test]
    fn time_confirmed_by_the_steady_clock_is_accepted() {
        let mut machine = Machine::new();
        assert_eq!(machine.pass(30 * DAY, 0), 0);
        assert_eq!(machine.clock_filter.view(machine.engine), ClockView::default());
    }

    #[test]
    fn a_clock_that_was_a_little_wrong_is_followed() {
        let mut machine = Machine::new();
        assert_eq!(machine.pass(1, 240), 240);
        assert_eq!(machine.pass(1, 290), 290);
    }

    /// Many small leaps count as one large leap.
    #[test]
    fn small_leaps_do_not_add_up() {
        let mut machine = Machine::new();
        let mut most = 0;
        for step in 1..=3_600 {
            most = most.max(machine.pass(1, step * 60));
        }
        assert!((300..=700).contains(&most), "{most}");
    }

    /// The first leap is accepted completely, the second not at all.
    #[test]
    fn a_second_leap_does_not_undo_the_first() {
        for second in [1, 3, DAY] {
            let mut machine = Machine::new();
            machine.pass(10, 0);
            assert_eq!(machine.pass(1, 300), 300);
            for _ in 0..600 {
                assert_eq!(machine.pass(1, 300 + second), 300);
            }
        }
    }

    /// Engine time waits for the clock that was set back. A later leap must not prolong this wait.
    #[test]
    fn a_refused_leap_ends_the_wait_for_a_clock_that_was_set_back() {
        let mut machine = Machine::new();
        machine.pass(10, 0);
        assert_eq!(machine.pass(1, 52), 52);
        assert_eq!(machine.pass(1, 0), 51);
        for _ in 0..60 {
            assert_eq!(machine.pass(1, DAY), 51);
        }
    }

    proptest! {
        /// Engine time stands still only while the wall clock shows less than before.
        #[test]
        fn leaps_ahead_never_stop_engine_time(
            steps in prop::collection::vec((1..2_000_i64, prop_oneof![Just(0), 1..400_i64, 1..2 * DAY]), 1..40),
        ) {
            let mut machine = Machine::new();
            let (mut wrong, mut ahead) = (0, 0);
            for (seconds, leap) in steps {
                wrong += leap;
                let now = machine.pass(seconds, wrong);
                prop_assert!(now >= ahead, "{now} s ahead after {ahead} s");
                ahead = now;
            }
        }
    }

    #[test]
    fn clock_set_back_for_a_while_is_no_leap() {
        let mut machine = Machine::new();
        assert_eq!(machine.pass(10, 0), 0);
        machine.pass(60, -DAY);
        assert_eq!(machine.pass(1, 0), 0);
        assert_eq!(machine.clock_filter.view(machine.engine).trouble(), None);
    }

    /// The steady clock also confirms the earlier wall clock after hours.
    #[test]
    fn a_clock_that_was_behind_for_hours_may_be_put_right() {
        let mut machine = Machine::new();
        assert_eq!(machine.pass(1_800, -3_600), -1_800);
        assert_eq!(machine.pass(3_600, -3_600), -3_600);
        assert_eq!(machine.pass(1, 0), 0);
        assert_eq!(machine.pass(1, 3_600), 0);
    }

    #[test]
    fn clock_that_was_never_set_is_no_reference() {
        let mut belief = ClockFilter::default();
        belief.begin(Now { wall: at(100), steady: at(0) }, at(0));
        belief.read(Now { wall: at(101), steady: at(1) }, at(101));
        assert_eq!(belief.read(Now { wall: at(BEGIN), steady: at(2) }, at(101)), at(BEGIN));
        assert_ne!(belief.read(Now { wall: at(2 * BEGIN), steady: at(3) }, at(BEGIN)), at(2 * BEGIN));
    }

    #[test]
    fn problem_of_engine_time_ahead_names_the_fix() {
        let mut machine = Machine::new();
        machine.engine = at(BEGIN + 10 * DAY);
        machine.pass(1, 0);
        let trouble = machine.clock_filter.view(machine.engine).trouble().unwrap();
        assert!(trouble.contains("engine time is 9d23h") && trouble.contains("reset-clock"), "{trouble}");
    }
}

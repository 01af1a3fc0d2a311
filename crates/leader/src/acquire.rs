//! Acquiring and releasing the shards.
//!
//! Every acquire grants new, higher epochs, so the store refuses whatever a former owner still sends. For this reason
//! a server that owns the shards and had a commit with an unknown outcome releases them and acquires them again.

use std::sync::Arc;

use engine::Now;
use model::record::Lease;
use model::{Duration, Timestamp};
use mutation::{Mutation, is_on};

use crate::backoff::Cause;
use crate::event::{Action, Answer, Call, Failure, FailureKind, Notice, Readiness, Retired};
use crate::leader::{Leader, Phase};
use crate::lease::LeadershipLease;

/// Delay before the next acquire request while another server owns the shards.
const ACQUIRE_DELAY: Duration = Duration::from_millis(250);
/// The same delay when that server is about to hand over.
const ACQUIRE_DELAY_HANDOVER: Duration = Duration::from_millis(10);
/// Maximum random addition to [`ACQUIRE_DELAY`], in milliseconds, so that standbys do not send their requests
/// together.
const ACQUIRE_JITTER_MILLIS: u64 = 100;
/// Timeout of the release call during a shutdown or a handover.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// What follows the release of the shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterRelease {
    /// They are acquired again, under new epochs.
    AcquireAgain,
    /// This server owned only some of them, and requests all of them again later.
    AskAgain,
    /// Another server takes over.
    HandedOver,
    /// The process ends.
    Stop,
}

impl<R> Leader<R> {
    /// Acquires the shards if that is allowed, or loads the shards that this server owns.
    pub(crate) fn ask(&mut self, now: Now) {
        let common = &mut self.common;
        if common.stops {
            return self.release(AfterRelease::Stop);
        }
        match common.leases.clone() {
            Some(_) if common.tainted => self.release(AfterRelease::AcquireAgain),
            Some(leases) => self.load(now, leases),
            None if !common.may_ask() => self.show_drained(),
            None => {
                let timeout = common.config.lease;
                let call = common.call(Call::Acquire, Some(timeout));
                self.phase = Phase::Acquiring { call, sent_at: now.steady };
            }
        }
    }

    fn show_drained(&mut self) {
        let common = &mut self.common;
        if !common.standing.may_acquire {
            let reason = "standby: this server is drained, and another server can lead".into();
            common.show(Readiness::Loading { reason });
            common.standby_shown = true;
        }
    }

    pub(crate) fn acquired(&mut self, now: Now, sent_at: Timestamp, answer: Result<Answer, Failure>) {
        let (taken, former_owner) = match answer {
            Ok(Answer::Acquired { leases, former_owner }) => (leases, former_owner),
            Ok(_) => (Vec::new(), Duration::ZERO),
            Err(failure) => return self.acquire_failed(now, failure),
        };
        let common = &mut self.common;
        let all = usize::from(common.config.shards);
        if taken.len() < all {
            return self.release_partial(now, taken, all);
        }
        let lease = LeadershipLease::new(sent_at, common.config.lease);
        common.lease = if common.config.is_exclusive { lease.exclusive() } else { lease };
        let leases: Arc<[Lease]> = taken.into();
        common.leases = Some(Arc::clone(&leases));
        common.former_owner_until = now.steady
            + if is_on(Mutation::LeaderIgnoresTheFormerOwner) { Duration::ZERO } else { former_owner };
        (common.tainted, common.standby_shown) = (false, false);
        if common.stops {
            return self.release(AfterRelease::Stop);
        }
        self.load(now, leases);
    }

    /// Handles a partial acquire: another server owns some of the shards. Two servers that each held a part would
    /// wait for each other.
    fn release_partial(&mut self, now: Now, taken: Vec<Lease>, all: usize) {
        let common = &mut self.common;
        if !std::mem::replace(&mut common.standby_shown, true) {
            common.notice(Notice::BecameStandby { shards: all - taken.len() });
            let reason = "standby: another server owns the shards".into();
            common.show(Readiness::Loading { reason });
        }
        if taken.is_empty() {
            return self.ask_again(now);
        }
        let timeout = common.config.lease;
        let call = common.call(Call::Release(taken.into()), Some(timeout));
        self.phase = Phase::Releasing { call, next: AfterRelease::AskAgain };
    }

    fn ask_again(&mut self, now: Now) {
        let pause = match self.common.standing.takeover_is_near {
            true => ACQUIRE_DELAY_HANDOVER,
            false => ACQUIRE_DELAY + Duration::from_millis(self.common.below(ACQUIRE_JITTER_MILLIS)),
        };
        self.phase = Phase::Standby { ask_at: now.steady + pause };
    }

    /// Handles a failure to acquire the shards, or to build an engine for them.
    pub(crate) fn acquire_failed(&mut self, now: Now, failure: Failure) {
        let tainted = failure.kind != FailureKind::Full;
        let cause = match failure.kind {
            FailureKind::Unavailable | FailureKind::OutcomeUnknown | FailureKind::Fenced => Cause::Away,
            _ => Cause::Failed,
        };
        if matches!(failure.kind, FailureKind::Fatal | FailureKind::TooNew) {
            return self.fail(failure.message);
        }
        self.common.standby_shown = false;
        let loading = Readiness::Loading { reason: failure.message.clone() };
        // A standby repeats its request several times a second while the store is unavailable: each reason is logged
        // once.
        if self.common.shown != loading {
            self.common.show(loading);
            self.common.notice(Notice::AcquireFailed(failure));
        }
        self.again(now, tainted, cause);
    }

    /// Retries after a delay.
    pub(crate) fn again(&mut self, now: Now, tainted: bool, cause: Cause) {
        let common = &mut self.common;
        common.stop_renewing();
        common.tainted |= tainted;
        common.notice(Notice::EngineRebuilds);
        let pause = common.backoff.pause(cause);
        let asks = Phase::Standby { ask_at: now.steady + pause };
        if let Phase::Loading(loading) = std::mem::replace(&mut self.phase, asks)
            && let Some(engine) = loading.engine
        {
            self.common.act(Action::Retire(Retired::Engine(engine)));
        }
    }

    /// Releases the shards, if this server owns any.
    pub(crate) fn release(&mut self, next: AfterRelease) {
        let common = &mut self.common;
        common.stop_renewing();
        if next == AfterRelease::Stop {
            common.show(Readiness::Stopping);
        }
        // With `AcquireAgain` the leases are kept until the release is answered.
        let leases = match next {
            AfterRelease::AcquireAgain => common.leases.clone(),
            _ => common.leases.take(),
        };
        let Some(leases) = leases else {
            self.phase = match next {
                AfterRelease::Stop => Phase::Ended(Ok(())),
                _ => Phase::Standby { ask_at: Timestamp::from_micros(i64::MIN) },
            };
            return;
        };
        let timeout = if next == AfterRelease::AcquireAgain { common.config.lease } else { RELEASE_TIMEOUT };
        let call = common.call(Call::Release(leases), Some(timeout));
        self.phase = Phase::Releasing { call, next };
    }

    pub(crate) fn released(&mut self, now: Now, next: AfterRelease, answer: Result<(), Failure>) {
        match (next, answer) {
            (AfterRelease::AcquireAgain | AfterRelease::AskAgain, Err(failure)) => {
                self.acquire_failed(now, failure)
            }
            (AfterRelease::AcquireAgain, Ok(())) => {
                self.common.leases = None;
                self.phase = Phase::Standby { ask_at: now.steady };
            }
            (AfterRelease::AskAgain, Ok(())) => self.ask_again(now),
            (AfterRelease::HandedOver | AfterRelease::Stop, answer) => {
                if let Err(failure) = answer {
                    self.common.notice(Notice::ReleaseFails(failure));
                }
                self.phase = match next {
                    AfterRelease::Stop => Phase::Ended(Ok(())),
                    _ => Phase::Standby { ask_at: now.steady },
                };
            }
        }
    }
}

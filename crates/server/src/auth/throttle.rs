//! Delays after failed logins, so that passwords cannot be guessed online.
//!
//! Each failure counts for several keys, and after some free failures the delay before the next attempt of a key
//! doubles:
//!
//! | key | free failures | longest delay |
//! |---|---|---|
//! | an account at an address | 5 | 15 minutes |
//! | an address, over all accounts | 30 | 1 minute |
//! | an account, over all addresses | 100 | 1 minute |
//! | a browser that has logged in to the account before | 10 | 15 minutes |
//!
//! A person cannot be locked out by others for ever: attackers at other addresses reach only the third limit, which lets
//! one attempt a minute pass. A browser that has logged in to the account before has a cookie as its proof, and only the
//! last limit applies to it. Tokens are never throttled.
//!
//! An attempt counts as failed from its start, so that many attempts at the same time do not escape the limit. A success
//! takes the failures of its account at its address back.
//!
//! The counts are in memory: each server has its own, and they begin again with its start. An IPv6 address counts as its
//! /64 network, see [`network`](crate::listener::network).
//!
//! # Cost
//! A few look-ups in one table under a lock. The table has at most `ENTRIES_MAX` entries of about 100 bytes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::hash::short_hash;

/// Delay after the first failure that is not free.
const DELAY_MIN: Duration = Duration::from_secs(1);
/// Time without a failure after which the failures of a key are dropped.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);
/// Most keys; the ones whose last failure is the oldest are dropped first.
const ENTRIES_MAX: usize = 100_000;

/// What a failure counts for. Names of accounts are hashed: a client chooses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Browser(u128),
    AccountAt(u128, Option<IpAddr>),
    Address(Option<IpAddr>),
    Account(u128),
}

impl Key {
    const fn free_failures(self) -> u32 {
        match self {
            Self::Browser(_) => 10,
            Self::AccountAt(..) => 5,
            Self::Address(_) => 30,
            Self::Account(_) => 100,
        }
    }

    const fn delay_max(self) -> Duration {
        match self {
            Self::Browser(_) | Self::AccountAt(..) => Duration::from_secs(15 * 60),
            Self::Address(_) | Self::Account(_) => Duration::from_secs(60),
        }
    }

    fn delay(self, failures: u32) -> Duration {
        match failures.checked_sub(self.free_failures()) {
            None => Duration::ZERO,
            Some(beyond) => DELAY_MIN.saturating_mul(1 << beyond.min(20)).min(self.delay_max()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

/// Counts failed logins.
#[derive(Debug, Default)]
pub struct Throttle {
    failures: Mutex<HashMap<Key, Failures>>,
}

/// Where an attempt to log in comes from.
#[derive(Debug, Clone, Copy)]
pub enum Origin<'a> {
    /// Browser that has logged in to the account before, or a session of the account, by its id.
    Known(&'a str),
    /// Network of the client; `None` if the network has no addresses.
    Network(Option<IpAddr>),
}

/// Attempt to log in. It counts as failed, until one of the methods says otherwise.
#[must_use]
#[derive(Debug)]
pub struct Attempt<'a> {
    throttle: &'a Throttle,
    keys: Vec<Key>,
}

impl Throttle {
    /// Begins an attempt to log in elsewhere, whose account is not known yet: only the failures of the network count.
    ///
    /// # Errors
    /// The delay before the next attempt.
    pub fn begin_elsewhere(&self, network: Option<IpAddr>, now: Instant) -> Result<Attempt<'_>, Duration> {
        self.begin_with(vec![Key::Address(network)], now)
    }

    /// Begins an attempt.
    ///
    /// # Errors
    /// The delay before the next attempt.
    pub fn begin(&self, account: &str, origin: Origin<'_>, now: Instant) -> Result<Attempt<'_>, Duration> {
        let name = short_hash(&[account.as_bytes()]);
        let keys = match origin {
            Origin::Known(id) => vec![Key::Browser(short_hash(&[account.as_bytes(), id.as_bytes()]))],
            Origin::Network(address) => {
                vec![Key::AccountAt(name, address), Key::Address(address), Key::Account(name)]
            }
        };
        self.begin_with(keys, now)
    }

    fn begin_with(&self, keys: Vec<Key>, now: Instant) -> Result<Attempt<'_>, Duration> {
        let mut all = self.lock();
        let delay = keys.iter().map(|key| left(&all, *key, now)).max().unwrap_or_default();
        if !delay.is_zero() {
            return Err(delay);
        }
        drop_oldest(&mut all, now);
        for key in &keys {
            let found = all.entry(*key).or_insert(Failures { count: 0, last: now });
            if now.saturating_duration_since(found.last) >= FORGOTTEN_AFTER {
                found.count = 0;
            }
            *found = Failures { count: found.count.saturating_add(1), last: now };
        }
        Ok(Attempt { throttle: self, keys })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the delay that is left before the next attempt of a key.
fn left(all: &HashMap<Key, Failures>, key: Key, now: Instant) -> Duration {
    let Some(found) = all.get(&key) else { return Duration::ZERO };
    let since = now.saturating_duration_since(found.last);
    if since >= FORGOTTEN_AFTER {
        return Duration::ZERO;
    }
    key.delay(found.count).saturating_sub(since)
}

/// Makes place for the keys of one attempt.
fn drop_oldest(all: &mut HashMap<Key, Failures>, now: Instant) {
    let mut kept = FORGOTTEN_AFTER;
    while all.len() + 3 > ENTRIES_MAX {
        all.retain(|_, found| now.saturating_duration_since(found.last) < kept);
        kept /= 2;
    }
}

impl Attempt<'_> {
    /// Notes a success: the account has no failures at this address any more.
    pub fn succeeded(self) {
        let mut all = self.throttle.lock();
        for key in &self.keys {
            match key {
                Key::Browser(_) | Key::AccountAt(..) => {
                    all.remove(key);
                }
                Key::Address(_) | Key::Account(_) => take_back(&mut all, *key),
            }
        }
    }

    /// Takes the attempt back: the password was not checked.
    pub fn cancel(self) {
        let mut all = self.throttle.lock();
        for key in &self.keys {
            take_back(&mut all, *key);
        }
    }
}

fn take_back(all: &mut HashMap<Key, Failures>, key: Key) {
    if let Some(found) = all.get_mut(&key) {
        found.count = found.count.saturating_sub(1);
        if found.count == 0 {
            all.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u8) -> Origin<'static> {
        Origin::Network(Some(IpAddr::from([10, 0, 0, number])))
    }

    fn fail(throttle: &Throttle, account: &str, origin: Origin<'_>, now: Instant) -> Result<(), Duration> {
        throttle.begin(account, origin, now).map(|_| ())
    }

    #[test]
    fn the_delay_doubles_after_five_failures_up_to_a_quarter_of_an_hour() {
        let (throttle, mut now) = (Throttle::default(), Instant::now());
        for _ in 0..5 {
            assert_eq!(fail(&throttle, "ann", at(1), now), Ok(()));
        }
        let mut delays = Vec::new();
        for _ in 0..12 {
            let delay = fail(&throttle, "ann", at(1), now).unwrap_err();
            delays.push(delay.as_secs());
            now += delay;
            assert_eq!(fail(&throttle, "ann", at(1), now), Ok(()));
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
        assert_eq!(fail(&throttle, "bob", at(1), now), Ok(()), "other accounts are not concerned");
        assert_eq!(fail(&throttle, "ann", at(2), now), Ok(()), "nor other addresses");
        assert_eq!(fail(&throttle, "ann", at(1), now + FORGOTTEN_AFTER), Ok(()));
        assert_eq!(fail(&throttle, "ann", at(1), now + FORGOTTEN_AFTER), Ok(()), "it begins again");
    }

    #[test]
    fn attempts_at_the_same_time_count_from_their_start() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let open: Vec<_> = (0..20).filter_map(|_| throttle.begin("ann", at(1), now).ok()).collect();
        assert_eq!(open.len(), 5);
    }

    #[test]
    fn a_success_takes_the_failures_back() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for _ in 0..100 {
            for _ in 0..4 {
                assert_eq!(fail(&throttle, "ann", Origin::Known("b1"), now), Ok(()));
            }
            throttle.begin("ann", Origin::Known("b1"), now).unwrap().succeeded();
        }
        for _ in 0..200 {
            throttle.begin("ann", at(1), now).unwrap().succeeded();
            throttle.begin("ann", at(1), now).unwrap().cancel();
        }
        assert!(throttle.lock().is_empty());
    }

    /// A success must not reset the limit of an address: an attacker may have an account of its own.
    #[test]
    fn many_accounts_cannot_be_tried_from_one_address() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let mut tried = 0;
        while fail(&throttle, &format!("account-{tried}"), at(1), now).is_ok() {
            tried += 1;
            if let Ok(attempt) = throttle.begin("mallory", at(1), now) {
                attempt.succeeded();
            }
        }
        assert_eq!(tried, 30);
        assert_eq!(fail(&throttle, "ann", at(2), now), Ok(()));
    }

    #[test]
    fn an_attack_from_many_addresses_does_not_lock_a_known_browser_out() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..100 {
            assert_eq!(fail(&throttle, "ann", at(number), now), Ok(()));
        }
        assert_eq!(fail(&throttle, "ann", at(200), now), Err(Duration::from_secs(1)));
        assert_eq!(fail(&throttle, "ann", Origin::Known("browser"), now), Ok(()));
        // At most one attempt a minute, also after many more failures.
        let mut now = now;
        for number in 100..120 {
            let delay = fail(&throttle, "ann", at(200), now).unwrap_err();
            assert!(delay <= Duration::from_secs(60), "{delay:?}");
            now += delay;
            assert_eq!(fail(&throttle, "ann", at(number), now), Ok(()));
        }
    }

    #[test]
    fn a_browser_of_one_account_is_unknown_to_another() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        while fail(&throttle, "ann", Origin::Known("b"), now).is_ok() {}
        assert_eq!(fail(&throttle, "bob", Origin::Known("b"), now), Ok(()));
    }

    #[test]
    fn the_table_is_bounded() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        for number in 0..(ENTRIES_MAX as u64 / 2) {
            let address = IpAddr::from((0x2001_0db8_0000_0000_u128 + u128::from(number)).to_be_bytes());
            let origin = Origin::Network(Some(address));
            assert_eq!(fail(&throttle, "ann", origin, start + Duration::from_secs(number * 60)), Ok(()));
            if number % 1_000 == 0 {
                assert!(throttle.lock().len() <= ENTRIES_MAX);
            }
        }
        let now = start;
        let throttle = Throttle::default();
        for number in 0..(ENTRIES_MAX as u64 + 10) {
            let id = number.to_string();
            assert_eq!(
                fail(&throttle, "ann", Origin::Known(&id), now + Duration::from_millis(number)),
                Ok(())
            );
        }
        assert!(throttle.lock().len() <= ENTRIES_MAX);
    }
}

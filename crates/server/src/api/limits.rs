//! Limits on concurrent requests, so that one client cannot exclude the others.
//!
//! Requests of one kind share a [`Lane`] with a fixed number of places: reads, changes, slow bodies and uploads,
//! requests forwarded to the leader, event streams, and metrics. Lanes do not borrow from each other. A request enters
//! the lane of changes after its body is complete, so a slow body holds a place only among slow bodies. Bytes of bodies
//! in memory also have a lane, in which each byte is a place: a body takes places as it arrives and holds them until
//! its request is answered.
//!
//! Within a lane a client may hold as many places as are free (the "dynamic threshold" of A. Choudhury and E. Hahne,
//! 1998). One client alone gets half of the lane, two clients get a third each, and a new client always gets a place. A
//! setting can lower the share further. A client is a token at an address, because many clients may share a token.
//!
//! Jobs are counted against two rates: that of the client, and that of its account over all of its tokens
//! ([`SubmitRate`](access::SubmitRate)). Changes are handled by the leader, so the rates are exact for all servers. A
//! new leader begins with no counts.
//!
//! Pings of monitors need no token and have a lane of their own: there, a client is an address.
//!
//! Workers use gRPC, which these limits do not cover; health checks and pages need no token and take no place.
//!
//! # Cost
//! Two short critical sections for each request and lane. A submission takes one more for each rate that applies to it.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use access::AccountKind;
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::problem::{ApiError, Code};
use crate::auth::{Actor, IdentityKind};
use crate::config::{Exposure, LimitsConfig};
use crate::listener::{Peer, network};

/// Places for requests of metrics. They are separate from reads, so that an operator can see what fills the lanes.
const METRICS_PLACES: usize = 32;

/// Number of clients or accounts with a job rate above which idle ones are dropped.
const RATES_MAX: usize = 10_000;

/// The origin of a request, for limits: a token at an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Caller {
    token_id: Arc<str>,
    address: Option<IpAddr>,
}

impl Caller {
    pub(super) fn of(actor: &Actor, request: &Request, exposure: Exposure) -> Self {
        Self { token_id: Arc::clone(&actor.token_id), address: address(request, exposure).map(network) }
    }

    /// Returns the origin of a request without a token.
    pub(super) fn without_token(request: &Request, exposure: Exposure) -> Self {
        Self { token_id: Arc::from(""), address: address(request, exposure).map(network) }
    }
}

/// Returns the address of the client: that of the connection, or the one in the proxy's header.
pub(super) fn address(request: &Request, exposure: Exposure) -> Option<IpAddr> {
    address_in(request.extensions(), request.headers(), exposure)
}

/// Returns the address of the client of a request with these extensions and headers.
pub(super) fn address_in(extensions: &Extensions, headers: &HeaderMap, exposure: Exposure) -> Option<IpAddr> {
    let peer = extensions.get::<Peer>().copied();
    let by_proxy = || match (exposure, peer) {
        // Behind a proxy, every connection comes from the proxy. A server that forwards a request sends the client's
        // address.
        (Exposure::BehindProxy, Some(Peer::Connection(_)) | None) => forwarded_for(headers),
        _ => None,
    };
    by_proxy().or(peer.map(Peer::address))
}

/// Returns the last address in `X-Forwarded-For`: the proxy wrote it, and the client may have sent the others.
fn forwarded_for(headers: &HeaderMap) -> Option<IpAddr> {
    let last =
        headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?.rsplit(',').next()?.trim();
    let without_port = || last.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    last.trim_start_matches('[').trim_end_matches(']').parse().ok().or_else(without_port)
}

/// All lanes and the job rate.
pub(super) struct Limits {
    /// Reads.
    pub(super) reads: Lane,
    /// Changes.
    pub(super) changes: Lane,
    /// Slow request bodies, and uploads.
    pub(super) bodies: Lane,
    /// Requests forwarded to the leader.
    pub(super) forwards: Lane,
    /// Event streams and followed logs.
    pub(super) streams: Lane,
    /// Bytes of request bodies in memory.
    pub(super) body_bytes: Lane,
    /// Requests of metrics.
    pub(super) metrics: Lane,
    /// Pings of monitors.
    pub(super) pings: Lane,
    client_rate: Option<ClientRate>,
    /// Default limit of the accounts of people.
    submit_rate: Option<NonZeroU32>,
    account_rates: JobRates<Arc<str>>,
    counted: LimitMetrics,
}

/// Job rate of each client.
struct ClientRate {
    per_second: u64,
    rates: JobRates<Caller>,
}

impl Limits {
    pub(super) fn new(config: &LimitsConfig) -> Self {
        let counted = LimitMetrics::default();
        let lane = |name, places, share| Lane::new(name, places, share, &counted);
        Self {
            reads: lane("reads", config.requests, config.client_requests),
            changes: lane("changes", config.requests, config.client_requests),
            bodies: lane("bodies", config.requests, config.client_requests),
            forwards: lane("forwards", config.requests, config.client_requests),
            streams: lane("streams", config.streams, config.client_streams),
            body_bytes: lane("body_bytes", config.body_bytes, None),
            metrics: lane("metrics", METRICS_PLACES, None),
            pings: lane("pings", config.requests, None),
            client_rate: config.client_job_rate.map(|per_second| ClientRate {
                per_second: per_second.max(1),
                rates: JobRates::of_clients(),
            }),
            submit_rate: config.submit_rate,
            account_rates: JobRates::of_accounts(),
            counted,
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "http_places",
            "Concurrent requests by lane (kind of request); bytes for `body_bytes`",
            self.counted.places.clone(),
        );
        registry.register(
            "http_limited",
            "Requests refused by a limit on concurrent requests or by the job rate",
            self.counted.refused.clone(),
        );
    }

    /// Returns whether a job rate applies to a submission of this caller.
    pub(super) fn has_job_rate(&self, actor: &Actor) -> bool {
        self.client_rate.is_some() || self.submit_rate_of(actor).is_some()
    }

    /// Counts `jobs` against the rates of the account and of the client. Jobs that only the other rate refuses count
    /// too: the client repeats them later.
    ///
    /// # Errors
    /// `submit_rate` or `client_limit`, with the delay after which the account or the client may submit again.
    pub(super) fn charge(&self, actor: &Actor, caller: &Caller, jobs: usize) -> Result<(), ApiError> {
        self.charge_at(actor, caller, jobs, Instant::now())
    }

    fn charge_at(&self, actor: &Actor, caller: &Caller, jobs: usize, now: Instant) -> Result<(), ApiError> {
        if let Some(limit) = self.submit_rate_of(actor) {
            let per_second = f64::from(limit.get()) / 60.0;
            let charged = self.account_rates.charge(&actor.name, per_second, jobs, now);
            charged.map_err(|wait| self.account_refused(actor, limit, wait))?;
        }
        if let Some(ClientRate { per_second, rates }) = &self.client_rate {
            let charged = rates.charge(caller, *per_second as f64, jobs, now);
            charged.map_err(|wait| self.client_refused(*per_second, wait))?;
        }
        Ok(())
    }

    /// Returns the limit of an account in jobs per minute. Admin tokens belong to no account.
    fn submit_rate_of(&self, actor: &Actor) -> Option<NonZeroU32> {
        let kind = match actor.kind {
            IdentityKind::User => AccountKind::User,
            IdentityKind::Service => AccountKind::Service,
            IdentityKind::Admin | IdentityKind::Worker => return None,
        };
        actor.submit_rate.per_minute(kind, self.submit_rate)
    }

    fn account_refused(&self, actor: &Actor, limit: NonZeroU32, wait: Duration) -> ApiError {
        self.counted.refuse("jobs", "account");
        let name = &actor.name;
        let seconds = wait.as_secs_f64().ceil();
        let detail = format!(
            "account `{name}` has reached its limit of {limit} submitted jobs per minute: retry in {seconds} s"
        );
        let raise = if actor.submit_rate.is_default() {
            "`server.submit_rate` sets the default of all accounts of people, and an administrator can raise that of one"
        } else {
            "an administrator can raise the limit of the account"
        };
        ApiError::new(Code::SubmitRate, detail)
            .hint(format!(
                "retry after `Retry-After` seconds; {raise} (`submit_rate` in `PATCH /api/v1/accounts/{name}`)"
            ))
            .retry_after(wait)
    }

    fn client_refused(&self, per_second: u64, wait: Duration) -> ApiError {
        self.counted.refuse("jobs", "client");
        let detail = format!("the client has reached its limit of {per_second} jobs per second");
        ApiError::new(Code::ClientLimit, detail)
            .hint("retry after `Retry-After` seconds; `server.client_job_rate` sets the limit")
            .retry_after(wait)
    }
}

/// Places for requests of one kind.
#[derive(Clone)]
pub(super) struct Lane(Arc<LaneState>);

struct LaneState {
    name: &'static str,
    places: usize,
    client_max: usize,
    held: Mutex<LaneUsage>,
    in_use: Gauge,
    counted: LimitMetrics,
}

#[derive(Default)]
struct LaneUsage {
    total: usize,
    by_client: HashMap<Caller, usize>,
}

impl Lane {
    fn new(name: &'static str, places: usize, client_max: Option<usize>, counted: &LimitMetrics) -> Self {
        Self(Arc::new(LaneState {
            name,
            places,
            client_max: client_max.unwrap_or(places),
            held: Mutex::default(),
            in_use: counted.places.get_or_create(&LaneLabel { lane: name }).clone(),
            counted: counted.clone(),
        }))
    }

    /// Takes a place, which is held until the returned value is dropped.
    ///
    /// # Errors
    /// `client_limit` if the client has used up its share, `busy` if no place is free.
    pub(super) fn enter(&self, caller: &Caller) -> Result<Permits, ApiError> {
        let mut places = self.places_of(caller);
        places.take(1)?;
        Ok(places)
    }

    /// Returns an empty holder, with which a client [takes](Permits::take) places of the lane.
    pub(super) fn places_of(&self, caller: &Caller) -> Permits {
        Permits { lane: Arc::clone(&self.0), caller: caller.clone(), count: 0 }
    }
}

impl LaneState {
    fn lock(&self) -> MutexGuard<'_, LaneUsage> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn what(lane: &str) -> &'static str {
    match lane {
        "bodies" => "slow request bodies and uploads",
        "body_bytes" => "bytes of request bodies in memory",
        "forwards" => "requests forwarded to the leader",
        "metrics" => "concurrent requests for metrics",
        "pings" => "concurrent pings",
        "streams" => "open streams",
        _ => "concurrent requests",
    }
}

/// Places in a lane, released on drop.
pub(super) struct Permits {
    lane: Arc<LaneState>,
    caller: Caller,
    count: usize,
}

impl Permits {
    /// Takes further places.
    ///
    /// # Errors
    /// Same as [`Lane::enter`]; places that are already held are kept.
    pub(super) fn take(&mut self, count: usize) -> Result<(), ApiError> {
        let mut held = self.lane.lock();
        let own = held.by_client.get(&self.caller).copied().unwrap_or(0);
        let free = self.lane.places.saturating_sub(held.total);
        let (name, places, what) = (self.lane.name, self.lane.places, what(self.lane.name));
        if free < count {
            drop(held);
            self.lane.counted.refuse(name, "full");
            let detail = format!("the server has reached its limit of {places} {what}");
            return Err(ApiError::new(Code::Busy, detail));
        }
        // The first places of a client are always granted.
        if own > 0 && own + count > free.min(self.lane.client_max) {
            drop(held);
            self.lane.counted.refuse(name, "client");
            let detail = format!("the client has {own} of at most {places} {what}: its share is used up");
            return Err(ApiError::new(Code::ClientLimit, detail));
        }
        held.total += count;
        *held.by_client.entry(self.caller.clone()).or_default() += count;
        drop(held);
        self.count += count;
        self.lane.in_use.inc_by(i64::try_from(count).unwrap_or(i64::MAX));
        Ok(())
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut held = self.lane.lock();
        held.total -= self.count;
        if let Some(own) = held.by_client.get_mut(&self.caller) {
            *own -= self.count;
            if *own == 0 {
                held.by_client.remove(&self.caller);
            }
        }
        drop(held);
        self.lane.in_use.dec_by(i64::try_from(self.count).unwrap_or(i64::MAX));
    }
}

/// Jobs that each client or account submitted, as a rate with bursts (the "generic cell rate algorithm").
///
/// A submission of any size is accepted while its submitter is not in debt, so that a large batch is always possible. It
/// causes a longer wait, at most [`debt_max`](Self::debt_max).
struct JobRates<K> {
    /// Jobs of this time may be submitted at once.
    burst: Duration,
    /// Longest wait that one submission causes.
    debt_max: Duration,
    /// End of the wait of each submitter, without the burst.
    paid_until: Mutex<HashMap<K, Instant>>,
}

impl JobRates<Caller> {
    /// A limit per second. A client is blocked for at most a minute.
    fn of_clients() -> Self {
        Self {
            burst: Duration::from_secs(1),
            debt_max: Duration::from_secs(60),
            paid_until: Mutex::default(),
        }
    }
}

impl JobRates<Arc<str>> {
    /// A limit per minute, all of which can be used at once. An account with a small limit cannot exceed it with large
    /// batches, so it is blocked for longer than a client.
    fn of_accounts() -> Self {
        Self {
            burst: Duration::from_secs(60),
            debt_max: Duration::from_secs(3_600),
            paid_until: Mutex::default(),
        }
    }
}

impl<K: Clone + Eq + Hash> JobRates<K> {
    /// Counts jobs of a submitter, or returns the delay after which it may submit again.
    fn charge(&self, submitter: &K, per_second: f64, jobs: usize, now: Instant) -> Result<(), Duration> {
        let mut all = self.paid_until.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= RATES_MAX && !all.contains_key(submitter) {
            all.retain(|_, until| *until > now);
        }
        let until = all.get(submitter).copied().unwrap_or(now).max(now);
        let debt = until.saturating_duration_since(now);
        if debt >= self.burst {
            return Err(debt - self.burst + Duration::from_millis(1));
        }
        let cost = (jobs as f64 / per_second).min(self.debt_max.as_secs_f64());
        all.insert(submitter.clone(), until + Duration::from_secs_f64(cost));
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabel {
    lane: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    lane: &'static str,
    reason: &'static str,
}

#[derive(Clone, Default)]
struct LimitMetrics {
    places: Family<LaneLabel, Gauge>,
    refused: Family<RefusedLabels, Counter>,
}

impl LimitMetrics {
    fn refuse(&self, lane: &'static str, reason: &'static str) {
        self.refused.get_or_create(&RefusedLabels { lane, reason }).inc();
    }
}

#[cfg(test)]
mod tests {
    use access::{Identity, Resource, SubmitRate, Verb};
    use axum::body::Body;
    use axum::http::HeaderValue;

    use super::*;

    fn caller(number: u8) -> Caller {
        Caller { token_id: "t".into(), address: Some(IpAddr::from([10, 0, 0, number])) }
    }

    fn lane(places: usize, client_max: Option<usize>) -> Lane {
        Lane::new("reads", places, client_max, &LimitMetrics::default())
    }

    /// Takes as many places as the client gets.
    fn fill(lane: &Lane, caller: &Caller) -> Vec<Permits> {
        std::iter::from_fn(|| lane.enter(caller).ok()).collect()
    }

    #[test]
    fn one_client_gets_half_the_places_and_a_new_client_always_one() {
        let lane = lane(64, None);
        let first = fill(&lane, &caller(1));
        assert_eq!(first.len(), 32);
        assert_eq!(lane.enter(&caller(1)).err().map(|refused| refused.code()), Some(Code::ClientLimit));
        let second = fill(&lane, &caller(2));
        assert_eq!(second.len(), 16);
        assert!(lane.enter(&caller(3)).is_ok());
        drop(first);
        assert!(fill(&lane, &caller(2)).len() > 4);
    }

    #[test]
    fn a_full_lane_and_a_used_up_share_have_different_errors() {
        let lane = lane(2, Some(1));
        let _places = [lane.enter(&caller(1)).ok(), lane.enter(&caller(2)).ok()];
        let refused = lane.enter(&caller(3)).err().map(|refused| refused.into_problem(None).detail);
        assert_eq!(refused.as_deref(), Some("the server has reached its limit of 2 concurrent requests"));
    }

    #[test]
    fn a_released_place_is_free_and_its_client_is_removed() {
        let lane = lane(8, Some(3));
        let places = fill(&lane, &caller(1));
        assert_eq!(places.len(), 3);
        drop(places);
        assert_eq!(lane.0.lock().total, 0);
        assert!(lane.0.lock().by_client.is_empty());
    }

    #[test]
    fn a_client_takes_several_places_up_to_half_and_keeps_what_it_has_when_refused() {
        let lane = lane(100, None);
        let mut first = lane.places_of(&caller(1));
        assert_eq!(
            [first.take(20).is_ok(), first.take(30).is_ok(), first.take(1).is_ok()],
            [true, true, false]
        );
        let mut second = lane.places_of(&caller(2));
        assert_eq!(second.take(51).err().map(|refused| refused.code()), Some(Code::Busy));
        assert!(second.take(50).is_ok(), "the first places of a client are granted as far as there are any");
        drop((first, second));
        assert_eq!(lane.0.lock().total, 0);
        assert!(lane.0.lock().by_client.is_empty());
    }

    #[test]
    fn a_job_rate_allows_bursts_and_names_the_wait() {
        let (rates, now) = (JobRates::of_clients(), Instant::now());
        let charge = |number, jobs, at| rates.charge(&caller(number), 100.0, jobs, at);
        assert_eq!(charge(1, 1_000, now), Ok(()), "a batch larger than the rate is possible");
        let wait = charge(1, 1, now).unwrap_err();
        assert!((8.9..9.1).contains(&wait.as_secs_f64()), "{wait:?}");
        assert_eq!(charge(2, 1, now), Ok(()), "each client has a rate of its own");
        assert_eq!(charge(1, 1, now + wait), Ok(()));
    }

    fn limits() -> Limits {
        Limits::new(&LimitsConfig { submit_rate: NonZeroU32::new(60), ..LimitsConfig::default() })
    }

    fn actor(name: &str, kind: IdentityKind, submit_rate: SubmitRate) -> Actor {
        let mut identity = Identity::admin(name);
        (identity.kind, identity.submit_rate) = (kind, submit_rate);
        Actor::new(identity, Verb::Create, Resource::Jobs)
    }

    #[test]
    fn an_account_has_one_rate_over_all_its_tokens_and_addresses() {
        let (limits, now) = (limits(), Instant::now());
        let ann = actor("ann", IdentityKind::User, SubmitRate::Default);
        for client in 0..60 {
            assert_eq!(limits.charge_at(&ann, &caller(client), 1, now), Ok(()), "job {client}");
        }
        let refused = limits.charge_at(&ann, &caller(99), 1, now).unwrap_err();
        assert_eq!(refused.code(), Code::SubmitRate);
        let problem = refused.into_problem(None);
        assert_eq!((problem.status, problem.retry_after), (429, Some(1)));
        insta::assert_snapshot!(problem.detail, @"account `ann` has reached its limit of 60 submitted jobs per minute: retry in 1 s");
        insta::assert_snapshot!(problem.hint.unwrap(), @"retry after `Retry-After` seconds; `server.submit_rate` sets the default of all accounts of people, and an administrator can raise that of one (`submit_rate` in `PATCH /api/v1/accounts/ann`)");
        let later = |millis| now + Duration::from_millis(millis);
        assert_eq!(limits.charge_at(&ann, &caller(1), 1, later(1)), Ok(()), "one job a second from then on");
        assert!(limits.charge_at(&ann, &caller(1), 1, later(1_000)).is_err());
        assert_eq!(limits.charge_at(&ann, &caller(1), 1, later(1_001)), Ok(()));
        let bob = actor("bob", IdentityKind::User, SubmitRate::Default);
        assert_eq!(limits.charge_at(&bob, &caller(1), 1, now), Ok(()), "each account has a rate of its own");
    }

    #[test]
    fn programs_and_administrators_have_no_rate_until_one_is_set() {
        let (limits, now) = (limits(), Instant::now());
        let own = SubmitRate::PerMinute(NonZeroU32::MIN);
        for (kind, rate, limited) in [
            (IdentityKind::Service, SubmitRate::Default, false),
            (IdentityKind::Service, own, true),
            (IdentityKind::User, SubmitRate::Unlimited, false),
            (IdentityKind::User, own, true),
            (IdentityKind::Admin, SubmitRate::Unlimited, false),
        ] {
            let caller_of = actor(&format!("{kind}-{rate}"), kind, rate);
            assert_eq!(limits.has_job_rate(&caller_of), limited, "{kind} {rate}");
            assert_eq!(limits.charge_at(&caller_of, &caller(1), 100, now), Ok(()), "a batch is possible");
            assert_eq!(limits.charge_at(&caller_of, &caller(1), 1, now).is_err(), limited, "{kind} {rate}");
        }
    }

    #[test]
    fn a_batch_blocks_its_account_for_its_cost_and_at_most_an_hour() {
        let (limits, now) = (limits(), Instant::now());
        let ann = actor("ann", IdentityKind::User, SubmitRate::Default);
        assert_eq!(limits.charge_at(&ann, &caller(1), 600, now), Ok(()));
        let wait = limits.charge_at(&ann, &caller(1), 1, now).unwrap_err().into_problem(None).retry_after;
        assert_eq!(wait, Some(9 * 60 + 1));
        let bob = actor("bob", IdentityKind::User, SubmitRate::PerMinute(NonZeroU32::MIN));
        assert_eq!(limits.charge_at(&bob, &caller(1), 10_000, now), Ok(()));
        let wait = limits.charge_at(&bob, &caller(1), 1, now).unwrap_err().into_problem(None).retry_after;
        assert_eq!(wait, Some(59 * 60 + 1));
    }

    #[test]
    fn idle_accounts_take_no_memory() {
        let (rates, now) = (JobRates::of_accounts(), Instant::now());
        for number in 0..3 * RATES_MAX {
            let at = now + Duration::from_millis(number as u64);
            assert_eq!(rates.charge(&Arc::from(number.to_string()), 100.0, 1, at), Ok(()));
        }
        assert!(rates.paid_until.lock().unwrap().len() <= RATES_MAX);
    }

    #[test]
    fn a_client_behind_the_proxy_has_the_address_that_the_proxy_wrote() {
        let mut request = Request::new(Body::empty());
        request.headers_mut().append("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 10.0.0.1"));
        request.headers_mut().append("x-forwarded-for", HeaderValue::from_static("7.7.7.7, 10.0.0.9:4711"));
        request.extensions_mut().insert(Peer::Connection(IpAddr::from([127, 0, 0, 1])));
        assert_eq!(address(&request, Exposure::BehindProxy), Some(IpAddr::from([10, 0, 0, 9])));
        assert_eq!(address(&request, Exposure::Loopback), Some(IpAddr::from([127, 0, 0, 1])));
        request.extensions_mut().insert(Peer::Forwarded(IpAddr::from([10, 0, 0, 7])));
        assert_eq!(address(&request, Exposure::BehindProxy), Some(IpAddr::from([10, 0, 0, 7])));
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}

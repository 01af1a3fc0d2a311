//! Retry policy of requests.
//!
//! Requests that had no effect (connection errors, `429`, `503`) are retried until [`Timeouts::retry_for`] ends. A server
//! whose certificate is refused is not asked again.
//! Requests with an unknown outcome are retried only if they are idempotent ([`Idempotency::Idempotent`]). The delay is that of
//! the `Retry-After` header, else 100 ms, doubled with each retry up to 2 s, with a jitter of 25 %.

use std::time::{Duration, Instant};

use rand::RngExt;

use crate::error::Error;

/// Code of an HTTP error without a problem document, for example from a gateway.
pub(crate) const HTTP_ERROR_CODE: &str = "http_error";

const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Timeouts of a client, and the time for which it retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Time for which a request is retried, counted from its first failure; zero disables retries [default: 30 s].
    pub retry_for: Duration,
    /// Timeout of the response to one attempt. Uploads of files have none [default: 30 s].
    pub response_timeout: Duration,
    /// Timeout of a connection attempt [default: 5 s].
    pub connect: Duration,
    /// Time without any bytes, also without keep-alives, after which a stream reconnects [default: 45 s].
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            retry_for: Duration::from_secs(30),
            response_timeout: Duration::from_secs(30),
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(45),
        }
    }
}

/// Whether a request is idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idempotency {
    /// Idempotent: the request reads, has an idempotency key, or sets a value that is already set.
    Idempotent,
    /// Not idempotent: retried only if the request had no effect.
    NotIdempotent,
}

/// Attempts of a request.
#[derive(Debug)]
pub(crate) struct Attempts {
    retry_for: Duration,
    failed_first: Option<Instant>,
    count: u32,
}

impl Attempts {
    pub(crate) fn new(patience: Timeouts) -> Self {
        Self { retry_for: patience.retry_for, failed_first: None, count: 0 }
    }

    /// Returns the delay before the next attempt, or `None` if `error` is final or the time for retries has ended.
    pub(crate) fn next(&mut self, error: &Error, repeat: Idempotency) -> Option<Duration> {
        let asked = match verdict(error) {
            RetryClass::Final => return None,
            RetryClass::Unknown if repeat == Idempotency::NotIdempotent => return None,
            RetryClass::Unknown => None,
            RetryClass::NoEffect { after } => after,
        };
        let spent = self.failed_first.get_or_insert_with(Instant::now).elapsed();
        let left = self.retry_for.checked_sub(spent).filter(|left| !left.is_zero())?;
        self.count += 1;
        let pause = asked.unwrap_or_else(|| jittered(self.count));
        // A delay that the server requests is not shortened; one that ends too late only delays the error. A delay of
        // our own is cut, so that the last attempt is at the end.
        if asked.is_some() && pause > left { None } else { Some(pause.min(left)) }
    }
}

fn jittered(count: u32) -> Duration {
    let pause = (PAUSE_FIRST * 2u32.saturating_pow(count.saturating_sub(1).min(10))).min(PAUSE_MAX);
    pause.mul_f64(rand::rng().random_range(0.75..1.25))
}

enum RetryClass {
    Final,
    /// The request may have taken effect.
    Unknown,
    /// The request had no effect.
    NoEffect {
        after: Option<Duration>,
    },
}

fn verdict(error: &Error) -> RetryClass {
    match error {
        Error::Unreachable { .. } if error.tls_failure().is_some() => RetryClass::Final,
        Error::Unreachable { .. } => RetryClass::NoEffect { after: None },
        Error::Interrupted { .. } | Error::Timeout { .. } => RetryClass::Unknown,
        Error::Problem(problem) => match (problem.status, problem.code.as_str()) {
            // `http_error` stands for a page of a gateway, which does not tell whether the request reached the server.
            (502..=504, "outcome_unknown" | HTTP_ERROR_CODE) => RetryClass::Unknown,
            (429 | 503, _) => RetryClass::NoEffect { after: problem.retry_after.map(Duration::from_secs) },
            _ => RetryClass::Final,
        },
        _ => RetryClass::Final,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16, code: &str, retry_after: Option<u64>) -> Error {
        Error::Problem(Box::new(model::api::Problem {
            kind: format!("/docs#{code}"),
            title: code.into(),
            status,
            detail: code.into(),
            code: code.into(),
            hint: None,
            errors: Vec::new(),
            instance: None,
            retry_after,
        }))
    }

    fn next(error: &Error, repeat: Idempotency) -> Option<Duration> {
        Attempts::new(Timeouts::default()).next(error, repeat)
    }

    #[test]
    fn a_request_that_may_have_been_executed_is_repeated_only_if_safe() {
        let unknown = problem(503, "outcome_unknown", None);
        assert!(next(&unknown, Idempotency::Idempotent).is_some());
        assert_eq!(next(&unknown, Idempotency::NotIdempotent), None);
        let timeout = Error::Timeout { url: "http://x".into(), after: Duration::from_secs(1) };
        assert!(next(&timeout, Idempotency::Idempotent).is_some());
        assert_eq!(next(&timeout, Idempotency::NotIdempotent), None);
    }

    #[test]
    fn retry_after_of_a_busy_server_is_respected() {
        for repeat in [Idempotency::Idempotent, Idempotency::NotIdempotent] {
            assert_eq!(next(&problem(429, "busy", Some(3)), repeat), Some(Duration::from_secs(3)));
            assert_eq!(next(&problem(503, "loading", Some(1)), repeat), Some(Duration::from_secs(1)));
        }
    }

    #[test]
    fn a_refusal_or_a_delay_beyond_the_limit_is_final() {
        for (status, code) in
            [(400, "invalid"), (404, "job_not_found"), (409, "job_ended"), (507, "storage_full")]
        {
            assert_eq!(next(&problem(status, code, None), Idempotency::Idempotent), None, "{code}");
        }
        assert_eq!(next(&problem(503, "loading", Some(3_600)), Idempotency::Idempotent), None);
    }

    #[test]
    fn zero_retry_duration_disables_retries() {
        let mut tries = Attempts::new(Timeouts { retry_for: Duration::ZERO, ..Timeouts::default() });
        assert_eq!(tries.next(&problem(503, "loading", None), Idempotency::Idempotent), None);
    }

    #[test]
    fn delays_grow_up_to_a_limit() {
        let mut tries = Attempts::new(Timeouts::default());
        let busy = problem(503, "busy", None);
        let pauses: Vec<_> = (0..12).filter_map(|_| tries.next(&busy, Idempotency::Idempotent)).collect();
        assert!(pauses[0] < Duration::from_millis(130), "{pauses:?}");
        assert!(
            pauses[11] > Duration::from_millis(1_400) && pauses[11] < Duration::from_millis(2_600),
            "{pauses:?}"
        );
    }
}

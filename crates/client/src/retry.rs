//! Retry policy of requests.
//!
//! Requests that had no effect (connection errors, `429`, `503`) are retried until [`Patience::retry_for`] ends.
//! Requests with an unknown outcome are retried only if they are idempotent ([`Repeat::Safe`]). The delay is that of
//! the `Retry-After` header, else 100 ms, doubled with each retry up to 2 s, with a jitter of 25 %.

use std::time::{Duration, Instant};

use rand::RngExt;

use crate::error::Error;

/// Code of an HTTP error without a problem document, for example from a gateway.
pub(crate) const NO_PROBLEM: &str = "http_error";

const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Timeouts of a client, and the time for which it retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Time for which a request is retried, counted from its first failure; zero disables retries. Default: 30 s.
    pub retry_for: Duration,
    /// Timeout of the response to one attempt. Uploads of files have none. Default: 30 s.
    pub answer: Duration,
    /// Timeout of a connection attempt. Default: 5 s.
    pub connect: Duration,
    /// Time without any bytes, also without keep-alives, after which a stream reconnects. Default: 45 s.
    pub idle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            retry_for: Duration::from_secs(30),
            answer: Duration::from_secs(30),
            connect: Duration::from_secs(5),
            idle: Duration::from_secs(45),
        }
    }
}

/// Whether a request is idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Idempotent: the request reads, has an idempotency key, or sets a value that is already set.
    Safe,
    /// Not idempotent: retried only if the request had no effect.
    IfUntouched,
}

/// Attempts of a request.
#[derive(Debug)]
pub(crate) struct Tries {
    retry_for: Duration,
    failed_first: Option<Instant>,
    count: u32,
}

impl Tries {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { retry_for: patience.retry_for, failed_first: None, count: 0 }
    }

    /// Returns the delay before the next attempt, or `None` if `error` is final or the time for retries has ended.
    pub(crate) fn next(&mut self, error: &Error, repeat: Repeat) -> Option<Duration> {
        let asked = match verdict(error) {
            Verdict::Final => return None,
            Verdict::Unknown if repeat == Repeat::IfUntouched => return None,
            Verdict::Unknown => None,
            Verdict::NotNow { after } => after,
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

enum Verdict {
    Final,
    /// The request may have taken effect.
    Unknown,
    /// The request had no effect.
    NotNow {
        after: Option<Duration>,
    },
}

fn verdict(error: &Error) -> Verdict {
    match error {
        Error::Unreachable { .. } => Verdict::NotNow { after: None },
        Error::Interrupted { .. } | Error::Timeout { .. } => Verdict::Unknown,
        Error::Problem(problem) => match (problem.status, problem.code.as_str()) {
            // `http_error` stands for a page of a gateway, which does not tell whether the request reached the server.
            (502..=504, "outcome_unknown" | NO_PROBLEM) => Verdict::Unknown,
            (429 | 503, _) => Verdict::NotNow { after: problem.retry_after.map(Duration::from_secs) },
            _ => Verdict::Final,
        },
        _ => Verdict::Final,
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

    fn next(error: &Error, repeat: Repeat) -> Option<Duration> {
        Tries::new(Patience::default()).next(error, repeat)
    }

    #[test]
    fn what_may_have_been_carried_out_is_repeated_only_if_that_is_safe() {
        let unknown = problem(503, "outcome_unknown", None);
        assert!(next(&unknown, Repeat::Safe).is_some());
        assert_eq!(next(&unknown, Repeat::IfUntouched), None);
        let timeout = Error::Timeout { url: "http://x".into(), after: Duration::from_secs(1) };
        assert!(next(&timeout, Repeat::Safe).is_some());
        assert_eq!(next(&timeout, Repeat::IfUntouched), None);
    }

    #[test]
    fn a_busy_server_is_asked_again_when_it_says() {
        for repeat in [Repeat::Safe, Repeat::IfUntouched] {
            assert_eq!(next(&problem(429, "busy", Some(3)), repeat), Some(Duration::from_secs(3)));
            assert_eq!(next(&problem(503, "loading", Some(1)), repeat), Some(Duration::from_secs(1)));
        }
    }

    #[test]
    fn a_refusal_is_final_and_so_is_a_wait_beyond_our_patience() {
        for (status, code) in
            [(400, "invalid"), (404, "job_not_found"), (409, "job_ended"), (507, "storage_full")]
        {
            assert_eq!(next(&problem(status, code, None), Repeat::Safe), None, "{code}");
        }
        assert_eq!(next(&problem(503, "loading", Some(3_600)), Repeat::Safe), None);
    }

    #[test]
    fn without_patience_nothing_is_tried_again() {
        let mut tries = Tries::new(Patience { retry_for: Duration::ZERO, ..Patience::default() });
        assert_eq!(tries.next(&problem(503, "loading", None), Repeat::Safe), None);
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut tries = Tries::new(Patience::default());
        let busy = problem(503, "busy", None);
        let pauses: Vec<_> = (0..12).filter_map(|_| tries.next(&busy, Repeat::Safe)).collect();
        assert!(pauses[0] < Duration::from_millis(130), "{pauses:?}");
        assert!(
            pauses[11] > Duration::from_millis(1_400) && pauses[11] < Duration::from_millis(2_600),
            "{pauses:?}"
        );
    }
}

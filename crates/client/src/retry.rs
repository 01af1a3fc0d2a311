//! Whether, and when, a request is tried again.
//!
//! Connection errors and answers that say "not now" are tried again until [`Patience`] ends. What
//! may have been carried out is repeated only if its request says that a second time changes
//! nothing ([`Repeat`]).

use std::time::{Duration, Instant};

use rand::RngExt;

use crate::error::Error;

/// The code of a refusal that came without a problem document, from a gateway for instance.
pub(crate) const NO_PROBLEM: &str = "http_error";

const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How long a client keeps trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// From the first failure of a request until it is given up; zero tries once.
    pub retry_for: Duration,
    /// For the answer to one try.
    pub answer: Duration,
    /// For a connection.
    pub connect: Duration,
    /// A stream on which nothing comes for so long, not even a heartbeat, is opened anew.
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

/// What a second time would change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Nothing: it reads, carries a key, or sets what is set already.
    Safe,
    /// Possibly something: only what was surely not carried out is tried again.
    IfUntouched,
}

/// The tries of one request.
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

    /// How long to wait before the next try, or `None` if `error` is final.
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
        // A wait beyond the end would only delay the bad news; one more try at the end is worth it
        // where the pause is our own choice.
        if asked.is_some() && pause > left { None } else { Some(pause.min(left)) }
    }
}

fn jittered(count: u32) -> Duration {
    let pause = (PAUSE_FIRST * 2u32.saturating_pow(count.saturating_sub(1).min(10))).min(PAUSE_MAX);
    pause.mul_f64(rand::rng().random_range(0.75..1.25))
}

enum Verdict {
    Final,
    /// It may have been carried out.
    Unknown,
    /// It was not carried out.
    NotNow {
        after: Option<Duration>,
    },
}

fn verdict(error: &Error) -> Verdict {
    match error {
        Error::Unreachable { .. } => Verdict::NotNow { after: None },
        Error::Interrupted { .. } | Error::Timeout { .. } => Verdict::Unknown,
        Error::Problem(problem) => match (problem.status, problem.code.as_str()) {
            // `http_error` is our own word for a gateway's page: it does not say how far it came.
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

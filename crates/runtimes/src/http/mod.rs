//! The runtime `http`: sends a request and judges the response.
//!
//! ```text
//! spec ──plan──> request ──sender──> response ──plan──> verdict, outputs
//!                    ^                  │
//!                    └────── poll ──────┘
//! ```
//!
//! - [`plan`]: everything that can be checked before the first request.
//! - [`variables`]: `${NAME}` in the texts of the spec.
//! - [`request`]: requests, their redirects and their credentials.
//! - [`sender`]: connections, time limits and retries.
//! - [`address`]: refused addresses.
//! - [`response`]: responses as values of expressions.
//! - [`log`]: the log of the execution.
//!
//! # Invariant
//! An execution ends with [`End::start_failed`] only if no byte of a request was sent.
//!
//! # Cost
//! A response needs up to 4 MiB, and its JSON value several times as much if an expression uses the body.

mod address;
mod log;
mod plan;
mod request;
mod response;
mod sender;
#[cfg(test)]
mod tests;
mod variables;

use std::io;

use model::limits::OUTPUT_BYTES_MAX;
use model::spec::HttpRun;
use shim::{ShimOrder, ShimReport};

use self::log::Log;
use self::plan::{Plan, Poll};
use self::response::Response;
use self::sender::Sender;
use self::variables::Variables;
use crate::End;
use crate::stop::Stop;

/// Variable with the path of the file for the outputs.
const OUTPUT_VARIABLE: &str = "BELFRY_OUTPUT";
/// Most failed requests in a row of a poll.
const FAILED_POLLS_MAX: usize = 10;
/// Exit code of a process that a signal ends, minus the signal.
const SIGNAL_BASE: i32 = 128;

/// Sends the request of an execution, until it has a result or a stop signal arrives.
pub(crate) async fn run(order: &ShimOrder, http: &HttpRun, stop: &mut Stop) -> End {
    let (mut output, mut errors) = (io::stdout(), io::stderr());
    let mut log = Log::new(&mut output, &mut errors);
    let variables = |name: &str| match order.secrets.get(name) {
        Some(secret) => Some(secret.clone()),
        // The others belong to the worker.
        None if name.starts_with(variables::PREFIX) => std::env::var(name).ok(),
        None => None,
    };
    run_until(stop.next(), http, &variables, &mut log).await
}

/// Sends the request of an execution, until it has a result or `stop` returns a signal.
async fn run_until(
    stop: impl Future<Output = i32>,
    http: &HttpRun,
    variables: Variables<'_>,
    log: &mut Log<'_>,
) -> End {
    let result = tokio::select! {
        biased;
        signal = stop => Err(signal),
        result = Box::pin(call(http, variables, log)) => Ok(result),
    };
    match result {
        Ok(Ok(())) => End::Code(0),
        Ok(Err(end)) => {
            if let End::Reported(ShimReport::StartFailed { detail, .. } | ShimReport::Failed { detail, .. }) =
                &end
            {
                log.message(detail);
            }
            end
        }
        Err(signal) => {
            log.message(format_args!("signal {signal} stopped the request"));
            End::Code(u8::try_from(SIGNAL_BASE + signal).unwrap_or(crate::FAILED))
        }
    }
}

async fn call(http: &HttpRun, variables: Variables<'_>, log: &mut Log<'_>) -> Result<(), End> {
    let plan = Plan::new(http, variables)?;
    let mut sender = Sender::new(http.request_timeout.unwrap_or(HttpRun::REQUEST_TIMEOUT));
    let mut response = sender.send(&plan.request, log).await.map_err(|error| sender.end(&error))?;
    if let Some(poll) = &plan.poll
        && plan.expects_status(&response)
        && !matches!(poll.done_if.holds(&response), Ok(true))
    {
        response = poll_result(&mut sender, &plan, poll, &response, log).await?;
    }
    plan.judge(&response)?;
    match plan.outputs(&response)? {
        Some(outputs) => write_outputs(&outputs, variables),
        None => Ok(()),
    }
}

/// Polls until the work that `accepted` accepts is done. Returns the last response.
async fn poll_result(
    sender: &mut Sender,
    plan: &Plan,
    poll: &Poll,
    accepted: &Response,
    log: &mut Log<'_>,
) -> Result<Response, End> {
    let request = poll.request(&plan.request, accepted)?;
    let mut failures = 0;
    loop {
        tokio::time::sleep(poll.interval.to_std()).await;
        let problem = match sender.send(&request, log).await {
            Ok(response) if response.status.is_server_error() => {
                format!("the response has status {}", response.shown_status())
            }
            Ok(response) if poll.done_if.holds(&response)? => return Ok(response),
            Ok(_pending) => {
                failures = 0;
                continue;
            }
            Err(error) if error.is_transient() => error.to_string(),
            Err(error) => return Err(sender.end(&error)),
        };
        failures += 1;
        if failures == FAILED_POLLS_MAX {
            let problem = format!("polling failed {FAILED_POLLS_MAX} times in a row: {problem}");
            return Err(End::failed("poll_failed", problem));
        }
        log.message(format_args!("polling failed, trying again in {}: {problem}", poll.interval));
    }
}

fn write_outputs(outputs: &str, variables: Variables<'_>) -> Result<(), End> {
    let invalid = |problem: String| End::failed("output_invalid", problem);
    if outputs.len() > OUTPUT_BYTES_MAX {
        let problem =
            format!("the outputs have {} bytes: expected at most {OUTPUT_BYTES_MAX}", outputs.len());
        return Err(invalid(problem));
    }
    let path = variables(OUTPUT_VARIABLE)
        .ok_or_else(|| invalid(format!("cannot write the outputs: {OUTPUT_VARIABLE} is not set")))?;
    std::fs::write(&path, outputs)
        .map_err(|error| invalid(format!("cannot write the outputs to `{path}`: {error}")))
}

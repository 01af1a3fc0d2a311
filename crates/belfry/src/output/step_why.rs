//! Waiting reasons of the steps of a run as text (`belfry run why`).
//!
//! The engine determines the reasons; this module only formats them. The reasons of a job are in `why`: the reason
//! "the job of the step" names the command that explains the job. [`next_try`] is also used by `commands::runs` for a
//! run that waits for its next attempt.
//!
//! # Invariants
//! - A reason that a user can resolve names the command, such as `belfry run approve`.
//! - Lists of steps and workers are cut to [`NEEDS_SHOWN`] entries.
//! - A reason of a newer server is shown as JSON, not omitted.

use std::fmt::Write as _;

use model::why::{NextAttempt, StepReason, StepWhy, UpstreamStep};
use model::{StepStatus, Timestamp};

use super::text::{count, escape, format_open_enum};
use super::time::exact;
use super::{Format, OutputOptions};
use crate::failure::Failure;

/// Maximum number of upstream steps, or of workers, that are listed.
const NEEDS_SHOWN: usize = 10;

/// Formats the waiting reasons of steps. JSON and YAML have one object for one step, and a list for several.
pub(crate) fn format_steps(look: &OutputOptions, all: &[StepWhy]) -> Result<String, Failure> {
    Ok(match (look.format, all) {
        (Format::Json, [one]) => super::json(one)?,
        (Format::Json, all) => super::json(&all)?,
        (Format::Yaml, [one]) => super::yaml(one)?,
        (Format::Yaml, all) => super::yaml(&all)?,
        (Format::Name, all) => all.iter().map(|why| format!("{}\n", escape(&why.step))).collect(),
        (Format::Table | Format::Wide, all) => all.iter().map(|why| words(look, why)).collect(),
    })
}

fn words(look: &OutputOptions, why: &StepWhy) -> String {
    let step = escape(&why.step);
    let mut text = match why.status {
        StepStatus::Pending => format!("Step {step} has not started.\n"),
        live if live.is_live() => format!("Step {step} is {live}.\n"),
        ended => format!("Step {step} has ended: {ended}.\n"),
    };
    for reason in &why.reasons {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "- {}", format_open_enum(reason, |reason| sentence(look, why, reason)));
    }
    text
}

fn sentence(look: &OutputOptions, why: &StepWhy, reason: &StepReason) -> String {
    let run = why.run;
    match reason {
        StepReason::RunWaiting { running, limit, ahead } => {
            let position = match ahead {
                0 => "this run is next".to_owned(),
                1 => "1 run is ahead of this run".to_owned(),
                ahead => format!("{ahead} runs are ahead of this run"),
            };
            format!(
                "The workflow has reached its limit of concurrent runs ({running} of {limit} running); {position}."
            )
        }
        StepReason::RunRetrying(next) => {
            let what = match why.status.is_final() {
                true => "The step runs again in",
                false => "The run waits for",
            };
            format!("{what} {}.", next_attempt(look, next))
        }
        StepReason::LaterSection { section, current_section } => {
            format!(
                "The step is in section `{}`, but the run is still in section `{}`.",
                section.as_str(),
                current_section.as_str()
            )
        }
        StepReason::Paused { by, since } => format!(
            "The run was paused by {} at {}. Run `belfry run resume {run}` to resume it.",
            escape(by),
            exact(look, *since)
        ),
        StepReason::Upstream { join, needs, more } => {
            let join = serde_json::to_value(join).unwrap_or_default();
            let rule = join.as_str().unwrap_or_default();
            format!("The join rule `{rule}` waits for {}.", listed(needs, *more))
        }
        StepReason::ParallelSteps { running, limit } => {
            format!("The run has reached its limit of parallel steps ({running} of {limit} running).")
        }
        StepReason::NextBatch => "The step is about to start.".into(),
        StepReason::Job { job } => {
            format!("The job of the step is {job}. Run `belfry why {job}` for details.")
        }
        StepReason::CalledRun { run } => {
            format!("The called run is {run}. Run `belfry run why {run}` for details.")
        }
        StepReason::Elements { total, running, succeeded, failed } => format!(
            "{succeeded} of {} succeeded, {failed} failed, {running} running.",
            count(u64::from(*total), "element")
        ),
        StepReason::AddingSteps { steps } => format!("More elements may be added by {}.", listed(steps, 0)),
        StepReason::LostWorkers { workers, more } => {
            let mut names: Vec<_> = workers.iter().take(NEEDS_SHOWN).map(|name| escape(name)).collect();
            let hidden = workers.len().saturating_sub(NEEDS_SHOWN) + more;
            if hidden > 0 {
                names.push(format!("{hidden} more"));
            }
            format!(
                "Elements wait for lost workers: {}. Restart these workers, or cancel the jobs of the elements. Run \
                 `belfry run elements {run} {step}` to list the jobs.",
                names.join(", "),
                step = escape(&why.step)
            )
        }
        StepReason::Approval { approvers, message, until } => {
            let who = match approvers.as_slice() {
                [] => "any user who may change the run".to_owned(),
                some => some.iter().map(|name| escape(name)).collect::<Vec<_>>().join(" or "),
            };
            let step = escape(&why.step);
            let asks =
                message.iter().map(|message| format!(" Message: {}", escape(message))).collect::<String>();
            format!(
                "The step waits for approval by {who}{}. Run `belfry run approve {run} {step}` to approve it.{asks}",
                until_suffix(look, *until)
            )
        }
        StepReason::Event { event, until } => {
            let event = escape(event);
            format!(
                "The step waits for event `{event}`{}. Run `belfry run event {run} {event}` to send it.",
                until_suffix(look, *until)
            )
        }
        StepReason::Time { until: Some(until) } => format!("The step waits until {}.", exact(look, *until)),
        StepReason::Time { until: None } => "The step waits for its scheduled time.".into(),
        StepReason::Stopping { final_status, cause } => {
            format!("The step is being stopped and will be {final_status}: {}", lower_first(cause.sentence()))
        }
        StepReason::Ended { cause, message: Some(message) } => {
            format!("{}: {}", cause.sentence().trim_end_matches('.'), escape(message))
        }
        StepReason::Ended { cause, message: None } => cause.sentence().to_owned(),
    }
}

/// Formats the next attempt: `attempt 2 of 3, which starts at …`.
pub(crate) fn next_attempt(look: &OutputOptions, next: &NextAttempt) -> String {
    let NextAttempt { number, max, at } = next;
    match at {
        Some(at) => format!("attempt {number} of {max}, which starts at {}", exact(look, *at)),
        None => format!("attempt {number} of {max}, which starts once the run is resumed"),
    }
}

fn until_suffix(look: &OutputOptions, until: Option<Timestamp>) -> String {
    until.map(|at| format!(" until {}", exact(look, at))).unwrap_or_default()
}

fn lower_first(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

fn listed(needs: &[UpstreamStep], more: usize) -> String {
    let shown = needs.iter().take(NEEDS_SHOWN);
    let mut all: Vec<_> = shown.map(|need| format!("{} ({})", escape(&need.step), need.status)).collect();
    let hidden = needs.len().saturating_sub(NEEDS_SHOWN) + more;
    if hidden > 0 {
        all.push(format!("{hidden} more"));
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_reason_of_a_step_is_told_in_words() {
        let (run, at) = ("run_01k9zq3m6c0000000000000000", "2026-11-21T08:00:30Z");
        let told: StepWhy = serde_json::from_value(json!({
            "run": run, "step": "load", "status": "pending",
            "reasons": [
                {"reason": "run_waiting", "running": 1, "limit": 1, "ahead": 2},
                {"reason": "run_waiting", "running": 3, "limit": 3, "ahead": 0},
                {"reason": "run_retrying", "number": 2, "max": 3, "at": at},
                {"reason": "run_retrying", "number": 3, "max": 3},
                {"reason": "later_section", "section": "finally", "current_section": "steps"},
                {"reason": "paused", "by": "ann", "since": at},
                {"reason": "upstream", "join": "all_success", "more": 3, "needs": [
                    {"step": "extract\u{1b}", "status": "running"}, {"step": "check", "status": "pending"},
                ]},
                {"reason": "parallel_steps", "running": 4, "limit": 4},
                {"reason": "next_batch"},
                {"reason": "job", "job": "job_01k9zq3m6c0000000000000000"},
                {"reason": "called_run", "run": run},
                {"reason": "elements", "total": 100, "running": 1, "succeeded": 37, "failed": 2},
                {"reason": "adding_steps", "steps": [{"step": "split", "status": "running"}]},
                {"reason": "lost_workers", "workers": ["w2", "w3"], "more": 4},
                {"reason": "approval", "approvers": ["ann", "bob"], "until": at},
                {"reason": "approval", "approvers": []},
                {"reason": "event", "event": "paid", "until": at},
                {"reason": "time", "until": at},
                {"reason": "stopping", "final_status": "skipped", "cause": "marked"},
                {"reason": "ended", "cause": "job_failed", "message": "exited with 3"},
                {"reason": "ended", "cause": "join_rule"},
                {"reason": "quota", "limit": 3},
            ],
        }))
        .unwrap();
        let now: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
        let look = OutputOptions { format: Format::Table, color: false, now, width: None };
        let again =
            told.reasons.iter().filter(|reason| matches!(reason.known(), Some(StepReason::RunRetrying(_))));
        let reasons = again.cloned().collect();
        let ended = StepWhy { status: StepStatus::Failed, reasons, ..told.clone() };
        insta::assert_snapshot!(format_steps(&look, &[told, ended]).unwrap());
    }
}

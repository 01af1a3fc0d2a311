//! `belfry job cancel` and `belfry job retry` with filters: change all jobs that match.
//!
//! The command counts the jobs with a dry run, asks for a confirmation, and changes them page by page. The server
//! returns for each page the changed jobs, and the others with the reason; the command groups these over all pages.

use std::collections::HashSet;

use client::{ChangeJobs, Client};
use futures::stream::TryStreamExt as _;
use model::Duration;
use model::api::{CancelJobs, ChangedJob, ChangedJobs, JobSelection, RefusedJobs, RetryJobs};

use super::super::{Context, confirm};
use super::{filter, settle};
use crate::args::job::{CancelArgs, JobFilterArgs, SelectionArgs};
use crate::failure::{Exit, Failure};
use crate::output::progress::Progress;
use crate::output::text::{count, escape};
use crate::output::{Format, value};

/// Most IDs that are shown for a reason.
const IDS_SHOWN: usize = 3;

/// What a command does, in its texts.
struct Words {
    /// "cancel"
    verb: &'static str,
    /// "cancelled"
    done: &'static str,
}

/// Cancels the jobs that match the filters.
pub(super) async fn cancel(context: &Context, args: CancelArgs) -> Result<(), Failure> {
    let words = Words { verb: "cancel", done: "cancelled" };
    let reason = args.reason;
    let make = |jobs| ChangeJobs::Cancel(CancelJobs { jobs, reason });
    let (client, changed, result) = change(context, args.selection, &words, make).await?;
    if args.wait {
        for job in &changed.changed {
            settle(&client, job.id).await?;
        }
    }
    result
}

/// Runs the ended jobs that match the filters again.
pub(super) async fn retry(context: &Context, selection: SelectionArgs) -> Result<(), Failure> {
    let words = Words { verb: "retry", done: "retried" };
    let make = |jobs| ChangeJobs::Retry(RetryJobs { jobs });
    change(context, selection, &words, make).await?.2
}

/// Returns the changed jobs, and a failure if some jobs were refused.
async fn change(
    context: &Context,
    args: SelectionArgs,
    words: &Words,
    make: impl FnOnce(JobSelection) -> ChangeJobs,
) -> Result<(Client, ChangedJobs, Result<(), Failure>), Failure> {
    let Words { verb, done } = words;
    if !args.all && args.filter == JobFilterArgs::default() {
        return Err(Failure::usage(format!("no jobs to {verb}: expected IDs or filters"))
            .help(format!("run `belfry job {verb} --help` for the filters; `--all` selects all jobs")));
    }
    let (client, namespace) = context.connect()?;
    let filter = filter(context, &client, namespace.filter(), args.filter).await?;
    // Without a namespace, the command selects all namespaces, which the API wants to be said.
    let namespace = filter.namespace.clone().or_else(|| Some("*".to_owned()));
    let mut request = make(JobSelection { namespace, ..filter.into() });
    if args.dry_run || !args.yes {
        let (selected, failure) = all_pages(context, &client, request.clone(), true, words).await;
        failure?;
        let total = selected.changed.len() as u64;
        if args.dry_run {
            show(context, &selected, &format!("{} would be {done}", count(total, "job")))?;
            return Ok((client, ChangedJobs::default(), Ok(())));
        }
        if total == 0 {
            context.out.note(format!("no jobs to {verb}"));
            return Ok((client, ChangedJobs::default(), Ok(())));
        }
        confirm(&format!("{verb} {}", count(total, "job")), &format!("no job was {done}"))?;
        // The confirmation is for these jobs, and not for those that were submitted meanwhile.
        let newest = selected.changed.iter().map(|job| job.id).max();
        request.submitted_before(newest.map(|id| id.created_at() + Duration::from_millis(1)));
    }
    let (changed, failure) = all_pages(context, &client, request, false, words).await;
    let repeated = changed.changed.iter().filter(|job| job.already_retried).count();
    let mut sentence = format!("{} {done}", count((changed.changed.len() - repeated) as u64, "job"));
    if repeated > 0 {
        sentence.push_str(&format!("; {} had been {done} before", count(repeated as u64, "job")));
    }
    show(context, &changed, &sentence)?;
    let result = report(context, &changed.refused, words);
    Ok((client, changed, failure.and(result)))
}

/// Returns the results of all pages until the end or a failure, and the failure.
async fn all_pages(
    context: &Context,
    client: &Client,
    request: ChangeJobs,
    dry_run: bool,
    words: &Words,
) -> (ChangedJobs, Result<(), Failure>) {
    let progress = Progress::new(context.out);
    let mut pages = client.change_jobs(request, dry_run);
    let mut all = ChangedJobs::default();
    let mut seen = HashSet::new();
    loop {
        let page = match pages.try_next().await {
            Ok(Some(page)) => page,
            Ok(None) => return (all, Ok(())),
            Err(error) => return (all, Err(error.into())),
        };
        // A page that failed in its middle is repeated.
        all.changed.extend(page.changed.into_iter().filter(|job| seen.insert(job.id)));
        for group in page.refused {
            match all.refused.iter_mut().find(|known| known.code == group.code) {
                Some(known) => known.jobs.extend(group.jobs),
                None => all.refused.push(group),
            }
        }
        if progress.is_redrawn() {
            let what = if dry_run { "found" } else { words.done };
            progress.set_message(format!("{} {what}", count(all.changed.len() as u64, "job")));
        }
    }
}

/// Writes the result to standard output: IDs, a document, or a sentence.
fn show(context: &Context, changed: &ChangedJobs, sentence: &str) -> Result<(), Failure> {
    let look = &context.out.look;
    match look.format {
        Format::Table | Format::Wide => context.out.data(format!("{sentence}\n")),
        Format::Json | Format::Yaml => context.out.data(value(look, changed)?),
        Format::Name => {
            let id = |job: &ChangedJob| format!("{}\n", job.retried_as.unwrap_or(job.id));
            context.out.data(changed.changed.iter().map(id).collect::<String>())
        }
    }
}

/// Writes why jobs were not changed, to standard error.
fn report(context: &Context, refused: &[RefusedJobs], words: &Words) -> Result<(), Failure> {
    for group in refused {
        let total = group.jobs.len();
        let ids: Vec<_> = group.jobs.iter().take(IDS_SHOWN).map(ToString::to_string).collect();
        let more = if total > IDS_SHOWN { ", …" } else { "" };
        context.out.warn(format!(
            "{} not {} ({}): {}\n  {}{more}",
            count(total as u64, "job"),
            words.done,
            escape(&group.code),
            escape(&group.detail),
            ids.join(", ")
        ));
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure::silent(Exit::Failed)) }
}

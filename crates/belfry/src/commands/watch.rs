//! `belfry job list --watch`: a list of jobs that is read again and again.
//!
//! On a terminal, the table is redrawn in place. Elsewhere, and in formats for programs, there is a line or a document
//! for each job of the list that is new or has changed, oldest first. A job that leaves the list is not reported.

use std::collections::BTreeMap;
use std::time::Duration;

use client::{Client, JobFilter};
use model::JobId;
use model::api::Job;

use super::{Context, read_items};
use crate::args::job::ListLimit;
use crate::failure::Failure;
use crate::output::list;
use crate::output::screen::Screen;

/// Interval of reads.
const INTERVAL: Duration = Duration::from_secs(2);

/// Shows the jobs until the command is interrupted.
pub(super) async fn jobs(
    context: &Context,
    client: &Client,
    filter: JobFilter,
    many: &ListLimit,
) -> Result<(), Failure> {
    let mut screen = Screen::new(context.out);
    let mut versions = BTreeMap::new();
    let mut first = true;
    loop {
        let (jobs, more) = read_items(client.jobs(filter.clone()), many).await?;
        match &mut screen {
            Some(screen) => {
                let mut text = if jobs.is_empty() {
                    "no jobs\n".to_owned()
                } else {
                    list(&context.out.fresh_look(), &jobs)?
                };
                if more {
                    text.push_str("…\n");
                }
                screen.draw(&text)?;
            }
            None => {
                for job in changed(&mut versions, &jobs) {
                    context.out.item(job, std::mem::take(&mut first))?;
                }
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Returns the jobs that are new or have another version than before, oldest first.
fn changed<'a>(versions: &mut BTreeMap<JobId, u64>, jobs: &'a [Job]) -> Vec<&'a Job> {
    let before = std::mem::take(versions);
    versions.extend(jobs.iter().map(|job| (job.id, job.version)));
    jobs.iter().rev().filter(|job| before.get(&job.id) != Some(&job.version)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(n: u128, version: u64) -> Job {
        serde_json::from_value(json!({
            "id": JobId::from_bits(n).to_string(), "name": "j", "namespace": "default", "queue": "default",
            "priority": 50, "status": "running", "version": version, "created_at": "2026-11-21T08:00:00Z",
            "due_at": "2026-11-21T08:00:00Z", "updated_at": "2026-11-21T08:00:00Z",
            "executions": 1, "run_failures": 0, "start_failures": 0,
        }))
        .unwrap()
    }

    #[test]
    fn only_new_and_changed_jobs_are_reported() {
        let mut versions = BTreeMap::new();
        let mut told = |jobs: &[Job]| -> Vec<(JobId, u64)> {
            changed(&mut versions, jobs).iter().map(|job| (job.id, job.version)).collect()
        };
        let id = JobId::from_bits;
        assert_eq!(told(&[job(2, 1), job(1, 1)]), [(id(1), 1), (id(2), 1)]);
        assert_eq!(told(&[job(2, 1), job(1, 1)]), []);
        assert_eq!(told(&[job(3, 1), job(2, 2), job(1, 1)]), [(id(2), 2), (id(3), 1)]);
        assert_eq!(told(&[job(3, 1)]), []);
    }
}

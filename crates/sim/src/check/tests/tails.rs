//! Lost commits: which differences are accepted after a loss, and which are not.

use super::*;

/// Records now that the commits since `since` were lost.
fn loss(since: i64) -> What {
    What::TailLost { commits: 1, since: Some(second(since)) }
}

/// A job with this delivery level, a start of it in second 3 that no commit contains, and the loss of that commit.
fn forgotten(delivery: Delivery) -> Story {
    let mut story = Story::with(|spec| spec.delivery = delivery);
    story.submitted().starts(9);
    story
}

/// I1. Acknowledgements before the loss must hold; those since then need not.
#[test]
fn only_jobs_of_lost_commits_may_be_missing() {
    let read = What::Read { job: JOB, found: false };
    Story::new().asked().answered().event(loss(1)).event(read.clone()).holds();
    // The answer was pending when the commits were lost.
    Story::new().asked().event(loss(2)).answered().event(read.clone()).holds();
    Story::new().asked().answered().event(loss(3)).breaks(Invariant::I1);
    Story::new().event(loss(1)).asked().answered().breaks(Invariant::I1);
    Story::new().submitted().answered().event(loss(1)).event(read).breaks(Invariant::I1);
}

/// I1.
#[test]
fn a_cancellation_may_be_lost_with_its_commit() {
    let cancelled = || {
        let mut story = Story::new();
        story.submitted().event(What::Asked { request: 2, ask: Ask::Cancel { job: JOB } });
        story.event(What::Answered { request: 2, answer: Answer::Done });
        story
    };
    cancelled().event(loss(3)).holds();
    let mut again = cancelled();
    again.event(loss(3)).row.cancel_requested = true;
    let row = again.step(JobStatus::Cancelled, Cause::CancelRequested);
    again.commit(vec![row]).holds();
    cancelled().breaks(Invariant::I1);
}

/// I6, I7. The job may be started once more, and not twice.
#[test]
fn lost_executions_may_be_started_once_more() {
    for delivery in [Delivery::AtMostOnce, Delivery::ExactlyOnce, Delivery::AtLeastOnce] {
        let mut story = forgotten(delivery);
        story.task(9, TaskStep::Killed).event(loss(3)).placed().starts(1).succeeds().ends().holds();
    }
    forgotten(Delivery::AtMostOnce).task(9, TaskStep::Killed).breaks(Invariant::I6);
    let mut late = Story::new();
    late.submitted().event(loss(3));
    late.now += 10;
    late.starts(9).breaks(Invariant::I6);
    let mut twice = forgotten(Delivery::AtMostOnce);
    twice.task(9, TaskStep::Killed).starts(8).task(8, TaskStep::Killed).event(loss(3));
    twice.breaks(Invariant::I7);
}

/// I8. The worker reports its execution before a restart, unless the job may run twice.
#[test]
fn lost_executions_overlap_only_for_at_least_once_jobs() {
    let beside = |delivery| {
        let mut story = forgotten(delivery);
        story.event(loss(3)).placed().starts(1).task(9, TaskStep::Killed).succeeds();
        story
    };
    beside(Delivery::AtMostOnce).breaks(Invariant::I8);
    beside(Delivery::ExactlyOnce).breaks(Invariant::I8);
    beside(Delivery::AtLeastOnce).holds();
}

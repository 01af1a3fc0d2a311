//! Checkpoints that tasks save for the next execution.

use super::*;

/// A running task that requests to save `7`.
fn saving() -> Story {
    let mut story = Story::new();
    story.submitted().placed().starts(1).event(asks(1));
    story
}

fn asks(number: u32) -> What {
    What::Asked { request: 20, ask: Ask::Save { execution: execution(number), data: 7 } }
}

fn saved(version: u64) -> Row {
    Row::Checkpoint { job: JOB, version, data: 7 }
}

fn found(number: u32, data: u64) -> What {
    What::Found { execution: execution(number), data }
}

impl Story {
    fn keeps(&mut self, version: u64) -> &mut Self {
        self.commit(vec![saved(version)])
    }

    fn is_told_of_it(&mut self) -> &mut Self {
        self.event(What::Answered { request: 20, answer: Answer::Saved { version: 1 } })
    }

    fn goes_down(&mut self) -> &mut Self {
        self.task(1, TaskStep::Killed).lost().placed()
    }
}

/// I1, I6.
#[test]
fn an_acknowledged_checkpoint_exists() {
    saving().keeps(1).is_told_of_it().succeeds().holds();
    saving().is_told_of_it().breaks(Invariant::I1);
    saving().is_told_of_it().keeps(1).breaks(Invariant::I6);
}

/// I1. The next execution continues from the last accepted checkpoint.
#[test]
fn the_next_execution_gets_the_last_checkpoint() {
    saving().keeps(1).goes_down().event(found(2, 7)).starts(2).succeeds().holds();
    saving().keeps(1).goes_down().starts(2).breaks(Invariant::I1);
    saving().keeps(1).goes_down().event(found(2, 8)).starts(2).breaks(Invariant::I1);
    saving().goes_down().event(found(2, 7)).starts(2).breaks(Invariant::I1);
}

/// I10. A stale fence changes nothing.
#[test]
fn a_replaced_execution_saves_no_checkpoint() {
    saving().goes_down().keeps(1).breaks(Invariant::I10);
    saving().task(1, TaskStep::Killed).lost().keeps(1).breaks(Invariant::I10);
}

/// I3, I4.
#[test]
fn an_unsaved_checkpoint_and_a_version_gap_are_reported() {
    Story::new().submitted().placed().starts(1).keeps(1).breaks(Invariant::I3);
    saving().keeps(2).breaks(Invariant::I4);
    saving().keeps(1).keeps(3).breaks(Invariant::I4);
}

/// I1. After a loss, the next execution may continue from the previous checkpoint.
#[test]
fn a_checkpoint_may_be_lost_with_its_commit() {
    let told = || {
        let mut story = saving();
        story.is_told_of_it();
        story
    };
    let loss = |since| What::TailLost { commits: 1, since: Some(second(since)) };
    told().event(loss(5)).goes_down().starts(2).succeeds().holds();
    told().goes_down().event(loss(9)).starts(2).succeeds().breaks(Invariant::I1);
}

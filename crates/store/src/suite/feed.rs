//! Rules for the event feed.

use model::record::Event;

use super::{Fixture, Subject};
use crate::EventSeq;

async fn commit_events<S: Subject>(scene: &mut Fixture<S>, count: usize) -> (EventSeq, Vec<Event>) {
    let events: Vec<_> = (0..count).map(|_| scene.sampler.event()).collect();
    let batch = scene.batch(Vec::new(), events.clone());
    let committed = scene.store().commit(&scene.leases, batch).await.unwrap();
    (committed.first_event, events)
}

/// H1.
pub async fn events_have_positions_without_gaps<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(21).await;
    let empty = scene.store().events(EventSeq::default(), 10).await.unwrap();
    assert_eq!((empty.events.len(), empty.newest), (0, EventSeq(0)));
    let mut expected = Vec::new();
    let mut next = None;
    for count in [1, 3, 0, 700, 2] {
        let (first, events) = commit_events(&mut scene, count).await;
        assert_eq!(first, next.unwrap_or(first), "there is a gap");
        expected.extend((first.0..).map(EventSeq).zip(events));
        next = Some(EventSeq(first.0 + count as u64));
    }
    let page = scene.store().events(EventSeq::default(), 10_000).await.unwrap();
    assert_eq!(page.events, expected);
    assert_eq!(page.oldest, expected[0].0);
    let newest = expected[expected.len() - 1].0;
    assert_eq!(page.newest, newest);
    // A reader of only future events passes the maximum position.
    let to_come = scene.store().events(EventSeq(u64::MAX), 1).await.unwrap();
    assert_eq!((to_come.events.len(), to_come.newest), (0, newest));
}

/// H1. After each single event, across batches.
pub async fn a_reader_resumes_where_it_stopped<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(22).await;
    let mut expected = Vec::new();
    for count in [5, 1, 300, 4] {
        expected.extend(commit_events(&mut scene, count).await.1);
    }
    for limit in [1, 7, 256] {
        let mut found = Vec::new();
        let mut after = EventSeq::default();
        loop {
            let page = scene.store().events(after, limit).await.unwrap();
            assert!(page.events.len() <= limit);
            let Some((last, _)) = page.events.last() else { break };
            after = *last;
            found.extend(page.events.into_iter().map(|(_, event)| event));
        }
        assert_eq!(found, expected, "{limit} at a time");
    }
}

/// H1. The reader learns that it has missed events.
pub async fn a_reader_detects_trimmed_events<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(23).await;
    commit_events(&mut scene, 10).await;
    let before = scene.sampler.now();
    let (first, kept) = commit_events(&mut scene, 5).await;
    scene.store().trim_events(before).await.unwrap();
    let page = scene.store().events(EventSeq::default(), 100).await.unwrap();
    assert_eq!(page.oldest, first);
    assert_eq!(page.events.into_iter().map(|(_, event)| event).collect::<Vec<_>>(), kept);
}

/// H1.
pub async fn positions_continue_after_all_events_were_trimmed<S: Subject>() {
    let mut scene = Fixture::<S>::seeded(24).await;
    let (first, _) = commit_events(&mut scene, 10).await;
    let now = scene.sampler.now();
    scene.store().trim_events(now).await.unwrap();
    let mut scene = scene.reopen().await;
    let page = scene.store().events(EventSeq::default(), 100).await.unwrap();
    assert_eq!((page.events.len(), page.newest), (0, EventSeq(first.0 + 9)));
    assert!(page.oldest > page.newest, "nothing is kept");
    let (next, _) = commit_events(&mut scene, 1).await;
    assert_eq!(next, EventSeq(first.0 + 10), "a place was given out twice");
}
